package postadjudication

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// handlerRecorder records the letters that a handler received.
type handlerRecorder struct {
	mu      sync.Mutex
	letters []DeadLetter
	answer  background.Result // Executed when zero
}

func (h *handlerRecorder) handle(_ context.Context, l DeadLetter) background.Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.letters = append(h.letters, l)
	if h.answer.Class == "" {
		return background.Result{Class: escrow.Executed}
	}
	return h.answer
}

func (h *handlerRecorder) all() []DeadLetter {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]DeadLetter(nil), h.letters...)
}

func failTask(context.Context, background.Attempt) background.Result {
	return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.failed", Message: "no"}}
}

func (r *rig) status(id background.RunID) casestatus.Status {
	r.t.Helper()
	st, err := r.Status(context.Background(), "acme", id)
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// payloadOf returns the payload of a run's only receipt of a subtype.
func (r *rig) payloadOf(st casestatus.Status, subtype receipts.Subtype) (p receipts.Payload) {
	r.t.Helper()
	trail, err := r.Receipts(context.Background(), "acme", st.Case, 0, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	found := 0
	for _, e := range trail {
		if e.Run == st.Run && e.Subtype == subtype {
			found++
			if p, err = e.Payload(); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if found != 1 {
		r.t.Fatalf("%d receipts %s of run %s", found, subtype, st.Run)
	}
	return p
}

// A run that dies has one handler, which receives the letter. Status and receipts of each refer
// to the other.
func TestADeathBeginsItsHandlerAndBothAreLinked(t *testing.T) {
	t.Parallel()
	var seen handlerRecorder
	r := newRig(t, func(c *Config) { c.OnDeath = LetterHandler{Handle: seen.handle} }).startWorkers()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	dead := r.status(letter.Run)
	if dead.Letter != background.LetterOpen || dead.Handler.IsZero() {
		t.Fatalf("the letter: %+v", dead)
	}
	handler := r.status(dead.Handler)
	if handler.LetterOf != letter.Run || handler.State != background.Succeeded || handler.Family != "settlement-dlq" || handler.RetryKey != "dlq:"+letter.Run.String() {
		t.Errorf("the handler: %+v", handler)
	}
	if p := r.payloadOf(dead, receipts.DeadLettered); p.NewRun != dead.Handler {
		t.Errorf("the receipt of the death refers to %s", p.NewRun)
	}
	if p := r.payloadOf(handler, receipts.Submitted); p.LetterOf != letter.Run {
		t.Errorf("the handler's receipt refers to %s", p.LetterOf)
	}
	got := seen.all()
	if len(got) != 1 {
		t.Fatalf("%d calls of the handler", len(got))
	}
	if l := got[0]; l.Run != letter.Run || l.Case != letter.Case || l.Tenant != "acme" || l.Family != casework.Family || l.Transaction != "txr_1" || l.Attempts != 1 ||
		l.ReasonCode != background.ReasonFinal || l.Class != escrow.NotExecuted || l.Error.Type != "http.refused" || l.Error.Code != "422" || !l.DeadAt.Equal(*dead.DeadAt) {
		t.Errorf("the handler was given %+v", l)
	}
	if c := r.caseOf(release(1)); c.Runs[0].Handler != dead.Handler {
		t.Errorf("the case does not show the handler: %+v", c.Runs[0])
	}
	r.mustAudit()
}

// A success has no handler. A fork that dies has a handler of its own, and so has each of many
// simultaneous deaths.
func TestEveryDeathHasOneHandlerOfItsOwn(t *testing.T) {
	t.Parallel()
	var seen handlerRecorder
	r := newRig(t, func(c *Config) { c.OnDeath = LetterHandler{Handle: seen.handle} }).startWorkers()
	r.mustSubmit(release(1000))
	r.untilNoneLive()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	r.escrow.mu.Lock()
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return busy429() }
	r.escrow.mu.Unlock()
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, forkRequest); err != nil {
		t.Fatal(err)
	}
	const many = 60
	for i := range many {
		r.mustSubmit(release(10 + i))
	}
	r.untilNoneLive()
	delivered := map[background.RunID]int{}
	for _, l := range seen.all() {
		delivered[l.Run]++
	}
	if len(delivered) != many+2 || len(seen.all()) != many+2 {
		t.Errorf("%d letters handled in %d calls, want %d", len(delivered), len(seen.all()), many+2)
	}
	if n := r.count(`SELECT count(*) FROM recourse.handlers h JOIN recourse.runs d ON d.id = h.letter AND d.state = 'dead_lettered'
		JOIN recourse.runs r ON r.id = h.run AND r.state = 'succeeded' AND r.retry_key = 'dlq:' || h.letter`); n != many+2 {
		t.Errorf("%d links, want %d", n, many+2)
	}
	r.mustAudit()
}

// A handler that fails becomes an ordinary dead letter without a handler, also if a default
// handler is configured, and also when it is forked.
func TestAHandlerThatFailsIsALetterAndMakesNoLoop(t *testing.T) {
	t.Parallel()
	seen := handlerRecorder{answer: background.Result{Class: escrow.NotExecuted, Retry: true, Failure: &background.Failure{Type: "pager.down"}}}
	r := newRig(t, func(c *Config) {
		c.Families = []PlainFamily{{Name: "chores", Handle: failTask}}
		c.OnAnyDeath = LetterHandler{Handle: seen.handle, Policy: retrypolicy.Policy{MaxRetryAttempts: 2}}
	}).startWorkers()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	ctx := context.Background()
	chore, err := r.SubmitTask(ctx, Task{Tenant: "acme", Family: "chores", RetryKey: "sweep"})
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	for _, id := range []background.RunID{letter.Run, chore.Run} {
		handler := r.status(r.status(id).Handler)
		if handler.Letter != background.LetterOpen || handler.Attempts != 2 || handler.Family != DefaultHandlerFamily || !handler.Handler.IsZero() {
			t.Errorf("the handler of %s: %+v", id, handler)
		}
		fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, handler.Run, forkRequest)
		if err != nil {
			t.Fatal(err)
		}
		r.untilNoneLive()
		if st := r.status(fork.Run); st.LetterOf != id || st.Letter != background.LetterOpen || !st.Handler.IsZero() {
			t.Errorf("the fork of the handler: %+v", st)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.runs`); n != 6 {
		t.Errorf("%d runs", n)
	}
	r.mustAudit()
}

// Another family handles the letters it is configured for, and reads the letter from its task.
func TestAnotherFamilyHandlesLetters(t *testing.T) {
	t.Parallel()
	var seen, fallback handlerRecorder
	r := newRig(t, func(c *Config) {
		c.Families = []PlainFamily{
			{Name: "desk", Handle: func(ctx context.Context, a background.Attempt) background.Result {
				l, err := ReadDeadLetter(a)
				if err != nil {
					return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "unreadable", Message: err.Error()}}
				}
				return seen.handle(ctx, l)
			}},
			{Name: "chores", Handle: failTask, OnDeath: LetterHandler{Family: "desk"}},
			{Name: "errands", Handle: failTask},
		}
		c.OnAnyDeath = LetterHandler{Handle: fallback.handle}
	}).startWorkers()
	ctx := context.Background()
	for _, family := range []string{"chores", "errands", "desk"} { // a task submitted to desk itself is no letter, so it dies
		if _, err := r.SubmitTask(ctx, Task{Tenant: "acme", Family: family, RetryKey: "one"}); err != nil {
			t.Fatal(err)
		}
	}
	r.untilNoneLive()
	if got := seen.all(); len(got) != 1 || got[0].Family != "chores" || got[0].RetryKey != "one" || got[0].Error.Type != "chore.failed" {
		t.Errorf("desk handled %+v", got)
	}
	if got := fallback.all(); len(got) != 2 {
		t.Errorf("the default handled %+v", got)
	}
	r.mustAudit()
}

func TestHandlersThatCannotBeAreRefusedAtOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	handle := (&handlerRecorder{}).handle
	for word, spoil := range map[string]func(*Config){
		"there are two":    func(c *Config) { c.OnDeath = LetterHandler{Handle: handle, Family: "chores"} },
		"are two":          func(c *Config) { c.OnAnyDeath = LetterHandler{Handle: handle, Family: "chores"} },
		"no plain family":  func(c *Config) { c.OnDeath = LetterHandler{Family: "nobody"} },
		`"settlement"`:     func(c *Config) { c.Families[0].OnDeath = LetterHandler{Family: casework.Family} },
		"can't be its own": func(c *Config) { c.Families[0].OnDeath = LetterHandler{Family: "chores"} },
		"is taken":         func(c *Config) { c.Families[1].Name, c.OnDeath = "settlement-dlq", LetterHandler{Handle: handle} },
		"too long": func(c *Config) {
			c.Families[0].Name, c.Families[0].OnDeath = strings.Repeat("a", 32), LetterHandler{Handle: handle}
		},
		"never discarded": func(c *Config) {
			c.OnDeath = LetterHandler{Handle: handle, Policy: retrypolicy.Policy{OnExhaustion: retrypolicy.Discard}}
		},
	} {
		c := Config{DatabaseURL: r.url, Redis: r.redis, Families: []PlainFamily{{Name: "chores", Handle: failTask}, {Name: "errands", Handle: failTask}}}
		spoil(&c)
		s, err := Open(context.Background(), c)
		if err == nil {
			err = errors.Join(errors.New("was opened"), s.Close())
		}
		if word == "never discarded" {
			word = "always kept"
		}
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
	var wrong *refusal.FieldError
	chores := joinRig(t, r.url, r.redis, r.escrow, func(c *Config) { c.Families = []PlainFamily{{Name: "chores", Handle: failTask}} })
	if _, err := chores.SubmitTask(context.Background(), Task{Tenant: "acme", Family: "chores", RetryKey: "dlq:mine"}); !errors.As(err, &wrong) || wrong.Field != "retry_key" {
		t.Errorf("a retry key of handlers: %v", err)
	}
}

// If a task already has the retry key of a handler, as from before handlers existed, the run
// still dies, without a handler. Runs that die in the same batch have theirs.
func TestADeathWhoseHandlersKeyIsTakenIsADeathAllTheSame(t *testing.T) {
	t.Parallel()
	var seen handlerRecorder
	r := newRig(t, func(c *Config) { c.OnDeath = LetterHandler{Handle: seen.handle} })
	ctx := context.Background()
	s := r.mustSubmit(release(1))
	taken := r.taskSubmission(ctx, r.cases.PlainFamilies["settlement-dlq"], Task{Tenant: "acme", Family: "settlement-dlq", RetryKey: "dlq:" + s.Run.String(), Payload: []byte(`{}`)})
	if out, err := r.submit(ctx, taken, nil); err != nil || out.Reply != Created {
		t.Fatalf("%+v, %v", out, err)
	}
	const many = 20
	for i := range many {
		r.mustSubmit(release(100 + i))
	}
	// All calls are answered at once, so that the runs die in one batch.
	var all sync.WaitGroup
	all.Add(many + 1)
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer {
		all.Done()
		all.Wait()
		return refused()
	}
	r.startWorkers()
	r.untilNoneLive()
	if st := r.status(s.Run); st.Letter != background.LetterOpen || !st.Handler.IsZero() {
		t.Errorf("%+v", st)
	}
	if p := r.payloadOf(r.status(s.Run), receipts.DeadLettered); !p.NewRun.IsZero() {
		t.Errorf("the receipt of the death names a handler %s, but there is none", p.NewRun)
	}
	if n := r.count(`SELECT count(*) FROM recourse.handlers h JOIN recourse.runs r ON r.id = h.run AND r.state = 'succeeded'`); n != many {
		t.Errorf("%d of %d deaths have a handler", n, many)
	}
	r.mustAudit()
}
