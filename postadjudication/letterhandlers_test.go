package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// handlerRecorder records the letters that a handler received.
type handlerRecorder struct {
	mu      sync.Mutex
	letters []postadjudication.DeadLetter
	answer  background.Result // Executed when zero
}

func (h *handlerRecorder) handle(_ context.Context, l postadjudication.DeadLetter) background.Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.letters = append(h.letters, l)
	if h.answer.Class == "" {
		return background.Result{Class: escrow.Executed}
	}
	return h.answer
}

func (h *handlerRecorder) all() []postadjudication.DeadLetter {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]postadjudication.DeadLetter(nil), h.letters...)
}

func failTask(context.Context, background.Attempt) background.Result {
	return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.failed", Message: "no"}}
}

// payloadOf returns the payload of a run's only receipt of a subtype.
func payloadOf(r *rig.Rig, st casestatus.Status, subtype receipts.Subtype) (p receipts.Payload) {
	r.T.Helper()
	trail, err := r.Receipts(context.Background(), "acme", st.Case, 0, 1000)
	if err != nil {
		r.T.Fatal(err)
	}
	found := 0
	for _, e := range trail {
		if e.Run == st.Run && e.Subtype == subtype {
			found++
			if p, err = e.Payload(); err != nil {
				r.T.Fatal(err)
			}
		}
	}
	if found != 1 {
		r.T.Fatalf("%d receipts %s of run %s", found, subtype, st.Run)
	}
	return p
}

// A run that dies has one handler, which receives the letter. Status and receipts of each refer
// to the other.
func TestADeathBeginsItsHandlerAndBothAreLinked(t *testing.T) {
	t.Parallel()
	var seen handlerRecorder
	r := rig.New(t, func(c *postadjudication.Config) { c.OnDeath = postadjudication.LetterHandler{Handle: seen.handle} }).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	dead := r.StatusOf(letter.Run)
	if dead.Letter != background.LetterOpen || dead.Handler.IsZero() {
		t.Fatalf("the letter: %+v", dead)
	}
	handler := r.StatusOf(dead.Handler)
	if handler.LetterOf != letter.Run || handler.State != background.Succeeded || handler.Family != "settlement-dlq" || handler.RetryKey != "dlq:"+letter.Run.String() {
		t.Errorf("the handler: %+v", handler)
	}
	if p := payloadOf(r, dead, receipts.DeadLettered); p.NewRun != dead.Handler {
		t.Errorf("the receipt of the death refers to %s", p.NewRun)
	}
	if p := payloadOf(r, handler, receipts.Submitted); p.LetterOf != letter.Run {
		t.Errorf("the handler's receipt refers to %s", p.LetterOf)
	}
	got := seen.all()
	if len(got) != 1 {
		t.Fatalf("%d calls of the handler", len(got))
	}
	if l := got[0]; l.Run != letter.Run || l.Case != letter.Case || l.Tenant != "acme" || l.Family != postadjudication.Family || l.Transaction != "txr_1" || l.Attempts != 1 ||
		l.ReasonCode != background.ReasonFinal || l.Class != escrow.NotExecuted || l.Error.Type != "http.refused" || l.Error.Code != "422" || !l.DeadAt.Equal(*dead.DeadAt) {
		t.Errorf("the handler was given %+v", l)
	}
	if c := r.CaseOf(rig.Release(1)); c.Runs[0].Handler != dead.Handler {
		t.Errorf("the case does not show the handler: %+v", c.Runs[0])
	}
	r.MustAudit()
	r.StopWorkers()
	testkit.Tamper(t, r.DB, `DELETE FROM recourse.handlers`)
	if a, err := r.Audit(context.Background()); err != nil || !strings.Contains(a.Broken[audit.InvariantLetters], letter.Run.String()) {
		t.Errorf("the handler is not stored, and the audit found %v, %v", a.Broken, err)
	}
}

// A success has no handler. A fork that dies has a handler of its own, and so has each of many
// simultaneous deaths.
func TestEveryDeathHasOneHandlerOfItsOwn(t *testing.T) {
	t.Parallel()
	var seen handlerRecorder
	r := rig.New(t, func(c *postadjudication.Config) { c.OnDeath = postadjudication.LetterHandler{Handle: seen.handle} }).StartWorkers()
	r.MustSubmit(rig.Release(1000))
	r.WaitNoneLive()
	letter := r.DeadLetter(1, rig.Refuses)
	r.Escrow.Answer(rig.RateLimits)
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	const many = 60
	for i := range many {
		r.MustSubmit(rig.Release(10 + i))
	}
	r.WaitNoneLive()
	delivered := map[background.RunID]int{}
	for _, l := range seen.all() {
		delivered[l.Run]++
	}
	if len(delivered) != many+2 || len(seen.all()) != many+2 {
		t.Errorf("%d letters handled in %d calls, want %d", len(delivered), len(seen.all()), many+2)
	}
	if n := r.Count(`SELECT count(*) FROM recourse.handlers h JOIN recourse.runs d ON d.id = h.letter AND d.state = 'dead_lettered'
		JOIN recourse.runs r ON r.id = h.run AND r.state = 'succeeded' AND r.retry_key = 'dlq:' || h.letter`); n != many+2 {
		t.Errorf("%d links, want %d", n, many+2)
	}
	r.MustAudit()
}

// A handler that fails becomes an ordinary dead letter without a handler, also if a default
// handler is configured, and also when it is forked.
func TestAHandlerThatFailsIsALetterAndMakesNoLoop(t *testing.T) {
	t.Parallel()
	seen := handlerRecorder{answer: background.Result{Class: escrow.NotExecuted, Retry: true, Failure: &background.Failure{Type: "pager.down"}}}
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: failTask}}
		c.OnAnyDeath = postadjudication.LetterHandler{Handle: seen.handle, Policy: retrypolicy.Policy{MaxRetryAttempts: 2}}
	}).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	ctx := context.Background()
	chore, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "sweep"})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	for _, id := range []background.RunID{letter.Run, chore.Run} {
		handler := r.StatusOf(r.StatusOf(id).Handler)
		if handler.Letter != background.LetterOpen || handler.Attempts != 2 || handler.Family != postadjudication.DefaultHandlerFamily || !handler.Handler.IsZero() {
			t.Errorf("the handler of %s: %+v", id, handler)
		}
		fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, handler.Run, rig.ForkRequest)
		if err != nil {
			t.Fatal(err)
		}
		r.WaitNoneLive()
		if st := r.StatusOf(fork.Run); st.LetterOf != id || st.Letter != background.LetterOpen || !st.Handler.IsZero() {
			t.Errorf("the fork of the handler: %+v", st)
		}
	}
	if n := r.CountRows("runs"); n != 6 {
		t.Errorf("%d runs", n)
	}
	r.MustAudit()
}

// Another family handles the letters it is configured for, and reads the letter from its task.
func TestAnotherFamilyHandlesLetters(t *testing.T) {
	t.Parallel()
	var seen, fallback handlerRecorder
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{
			{Name: "desk", Handle: func(ctx context.Context, a background.Attempt) background.Result {
				l, err := postadjudication.ReadDeadLetter(a)
				if err != nil {
					return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "unreadable", Message: err.Error()}}
				}
				return seen.handle(ctx, l)
			}},
			{Name: "chores", Handle: failTask, OnDeath: postadjudication.LetterHandler{Family: "desk"}},
			{Name: "errands", Handle: failTask},
		}
		c.OnAnyDeath = postadjudication.LetterHandler{Handle: fallback.handle}
	}).StartWorkers()
	ctx := context.Background()
	for _, family := range []string{"chores", "errands", "desk"} { // a task submitted to desk itself is no letter, so it dies
		if _, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: family, RetryKey: "one"}); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitNoneLive()
	if got := seen.all(); len(got) != 1 || got[0].Family != "chores" || got[0].RetryKey != "one" || got[0].Error.Type != "chore.failed" {
		t.Errorf("desk handled %+v", got)
	}
	if got := fallback.all(); len(got) != 2 {
		t.Errorf("the default handled %+v", got)
	}
	r.MustAudit()
}

func TestHandlersThatCannotBeAreRefusedAtOpen(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	handle := (&handlerRecorder{}).handle
	for word, spoil := range map[string]func(*postadjudication.Config){
		"there are two": func(c *postadjudication.Config) {
			c.OnDeath = postadjudication.LetterHandler{Handle: handle, Family: "chores"}
		},
		"are two": func(c *postadjudication.Config) {
			c.OnAnyDeath = postadjudication.LetterHandler{Handle: handle, Family: "chores"}
		},
		"no plain family": func(c *postadjudication.Config) { c.OnDeath = postadjudication.LetterHandler{Family: "nobody"} },
		`"settlement"`: func(c *postadjudication.Config) {
			c.Families[0].OnDeath = postadjudication.LetterHandler{Family: postadjudication.Family}
		},
		"can't be its own": func(c *postadjudication.Config) {
			c.Families[0].OnDeath = postadjudication.LetterHandler{Family: "chores"}
		},
		"is taken": func(c *postadjudication.Config) {
			c.Families[1].Name, c.OnDeath = "settlement-dlq", postadjudication.LetterHandler{Handle: handle}
		},
		"too long": func(c *postadjudication.Config) {
			c.Families[0].Name, c.Families[0].OnDeath = strings.Repeat("a", 32), postadjudication.LetterHandler{Handle: handle}
		},
		"never discarded": func(c *postadjudication.Config) {
			c.OnDeath = postadjudication.LetterHandler{Handle: handle, Policy: retrypolicy.Policy{OnExhaustion: retrypolicy.Discard}}
		},
	} {
		c := postadjudication.Config{DatabaseURL: r.DatabaseURL, Redis: r.Redis, Families: []postadjudication.PlainFamily{{Name: "chores", Handle: failTask}, {Name: "errands", Handle: failTask}}}
		spoil(&c)
		s, err := postadjudication.Open(context.Background(), c)
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
	chores := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: failTask}}
	})
	if _, err := chores.SubmitTask(context.Background(), postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "dlq:mine"}); !errors.As(err, &wrong) || wrong.Field != "retry_key" {
		t.Errorf("a retry key of handlers: %v", err)
	}
}

// If a task already has the retry key of a handler, as from before handlers existed, the run
// still dies, without a handler. Runs that die in the same batch have theirs.
func TestADeathWhoseHandlersKeyIsTakenIsADeathAllTheSame(t *testing.T) {
	t.Parallel()
	var seen handlerRecorder
	r := rig.New(t, func(c *postadjudication.Config) { c.OnDeath = postadjudication.LetterHandler{Handle: seen.handle} })
	ctx := context.Background()
	s := r.MustSubmit(rig.Release(1))
	taken := postadjudication.Task{Tenant: "acme", Family: "settlement-dlq", RetryKey: "dlq:" + s.Run.String(), Payload: []byte(`{}`)}
	if out, err := r.SubmitTaskUnchecked(ctx, taken); err != nil || out.Reply != postadjudication.Created {
		t.Fatalf("%+v, %v", out, err)
	}
	const many = 20
	for i := range many {
		r.MustSubmit(rig.Release(100 + i))
	}
	// All calls are answered at once, so that the runs die in one batch.
	var all sync.WaitGroup
	all.Add(many + 1)
	r.Escrow.Script(func(context.Context, escrow.Call) escrow.Answer {
		all.Done()
		all.Wait()
		return rig.Refused()
	})
	r.StartWorkers()
	r.WaitNoneLive()
	if st := r.StatusOf(s.Run); st.Letter != background.LetterOpen || !st.Handler.IsZero() {
		t.Errorf("%+v", st)
	}
	if p := payloadOf(r, r.StatusOf(s.Run), receipts.DeadLettered); !p.NewRun.IsZero() {
		t.Errorf("the receipt of the death names a handler %s, but there is none", p.NewRun)
	}
	if n := r.Count(`SELECT count(*) FROM recourse.handlers h JOIN recourse.runs r ON r.id = h.run AND r.state = 'succeeded'`); n != many {
		t.Errorf("%d of %d deaths have a handler", n, many)
	}
	r.MustAudit()
}
