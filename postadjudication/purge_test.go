package postadjudication_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func refusedLetters() postadjudication.PurgeRequest {
	return postadjudication.PurgeRequest{Reason: "settled by hand", Filter: deadletter.Filter{ErrorType: "http.refused"}}
}

func TestAPurgeTakesWhatItsFilterSelectsAndWasCounted(t *testing.T) {
	t.Parallel()
	r := rig.New(t, oneQueue, withArchive(t))
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	one, two, held := r.DeadLetter(1, rig.Refuses), r.DeadLetter(2, rig.Refuses), r.DeadLetter(3, rig.Refuses)
	other, unknown := r.DeadLetter(4, rig.RateLimits), r.DeadLetter(5, func(escrow.Call) escrow.Answer {
		a := rig.Refused()
		a.Class = escrow.Unknown
		return a
	})
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	untilArchivedTasks(r, inspector(r), 5, onlyQueue)
	q := refusedLetters()
	plan, err := r.As("acme", "user:ada").DeadLetters.PlanPurge(ctx, q)
	if err != nil || plan.Letters != 2 || plan.Held != 1 || plan.Unknown != 1 || plan.Money["EUR"] != 2000 {
		t.Fatalf("%+v, %v", plan, err)
	}
	for _, confirm := range []string{"", "yes", "3", "02", " 2"} {
		q.Confirm = confirm
		var bad *refusal.FieldError
		if done, err := r.Purge(ctx, "acme", q); !errors.As(err, &bad) || bad.Field != "confirm" || done.Letters != 0 {
			t.Errorf("%q: %+v, %v", confirm, done, err)
		}
	}
	q.Confirm = strconv.Itoa(plan.Letters)
	if done, err := r.Purge(ctx, "acme", q); err != nil || done != (postadjudication.Purged{Letters: 2, Held: 1, Unknown: 1}) {
		t.Errorf("%+v, %v", done, err)
	}
	for i, letter := range []postadjudication.Submitted{one, two, held, other, unknown} {
		if got := r.LetterStatus(letter); (got == background.LetterPurged) != (i < 2) {
			t.Errorf("letter %d is %s", i+1, got)
		}
	}
	payloads := r.Payloads(one, receipts.Purged)
	if len(payloads) != 1 || payloads[0].Reason != q.Reason || payloads[0].Archive == "" {
		t.Errorf("%+v", payloads)
	}
	untilArchivedTasks(r, inspector(r), 3, onlyQueue)
	if n, err := r.As("acme", "").DeadLetters.Count(ctx, deadletter.Filter{ErrorType: "http.refused"}); err != nil || n.Total != 2 {
		t.Errorf("%+v are listed, %v", n, err)
	}
	q.Confirm = "0"
	if done, err := r.Purge(ctx, "acme", q); err != nil || done.Letters != 0 {
		t.Errorf("again: %+v, %v", done, err)
	}
	r.MustAudit()
}

// With two people required, a purge that finds nothing to purge counts the skipped letters as
// its plan did.
func TestAPurgeOfTwoPeopleCountsWhatItSkips(t *testing.T) {
	t.Parallel()
	r := rig.New(t, oneQueue, withArchive(t))
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	held := r.DeadLetter(1, rig.Refuses)
	r.DeadLetter(2, func(escrow.Call) escrow.Answer {
		a := rig.Refused()
		a.Class = escrow.Unknown
		return a
	})
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	q := refusedLetters()
	q.Confirm = "0"
	if done, err := r.Service.As("acme", "user:ada").DeadLetters.Purge(ctx, q); err != nil || done != (postadjudication.Purged{Held: 1, Unknown: 1}) {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestAPurgeThatSaysTooLittleChangesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	ctx := context.Background()
	var bad *refusal.FieldError
	for field, change := range map[string]func(*acting, *postadjudication.PurgeRequest){
		"actor": func(who *acting, q *postadjudication.PurgeRequest) { who.actor = "" }, "reason": func(who *acting, q *postadjudication.PurgeRequest) { q.Reason = "" },
		"filter": func(who *acting, q *postadjudication.PurgeRequest) { q.Filter = deadletter.Filter{} }, "letter": func(who *acting, q *postadjudication.PurgeRequest) { q.Filter.Status = background.LetterForked },
		"outcome_class": func(who *acting, q *postadjudication.PurgeRequest) { q.Filter.Class = "unknow" },
	} {
		q := refusedLetters()
		q.Confirm = "1"
		who := acting{"acme", "user:ada"}
		change(&who, &q)
		if _, err := r.As(who.tenant, who.actor).DeadLetters.Purge(rig.AsOnePerson(ctx), q); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	q := refusedLetters()
	q.Confirm = "1"
	if _, err := r.Purge(ctx, "", q); !errors.As(err, &bad) || bad.Field != "tenant" {
		t.Errorf("no tenant: %v", err)
	}
	for field, c := range map[string]postadjudication.ClearRequest{
		"family":  {Reason: "x", Family: "setlement", Confirm: "setlement"},
		"confirm": {Reason: "x", Family: postadjudication.Family, Confirm: "yes"},
		"actor":   {Reason: "x", Family: postadjudication.Family, Confirm: postadjudication.Family},
	} {
		actor := "user:ada"
		if field == "actor" {
			actor = ""
		}
		if _, err := r.As("acme", actor).DeadLetters.Clear(rig.AsOnePerson(ctx), c); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := r.Clear(ctx, "", postadjudication.ClearRequest{Reason: "x", Family: postadjudication.Family, Confirm: postadjudication.Family}); !errors.As(err, &bad) || bad.Field != "tenant" {
		t.Errorf("no tenant: %v", err)
	}
	if got := r.LetterStatus(letter); got != background.LetterOpen {
		t.Errorf("the letter is %s", got)
	}
}

// A clear that stops half way is called again, and does the rest.
func TestAClearTakesAFamilyOfOneTenantAndGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	chores := func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}
	r := rig.New(t, chores).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	ctx := context.Background()
	for i := range 7 {
		if _, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: []string{"acme", "other"}[i%2], Family: "chores", Payload: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitNoneLive()
	away := &crashingArchive{left: 1000}
	k := newRetentionRig(r, chores, withArchive(t), func(c *postadjudication.Config) { away.Archive, c.Archive = c.Archive, away })
	q := postadjudication.ClearRequest{Reason: "spring cleaning", Family: "chores", Confirm: "chores"}
	if plan, err := k.As("acme", "user:ada").DeadLetters.PlanClear(ctx, q); err != nil || plan.Letters != 4 || len(plan.Money) != 0 {
		t.Errorf("%+v, %v", plan, err)
	}
	if done, err := k.Clear(ctx, "acme", q); !errors.Is(err, errCrashed) || done.Letters != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if puts := 1000 - away.left; puts != 7 {
		t.Errorf("%d files were tried of four letters, their halves and each", puts)
	}
	away.left = 0
	if done, err := k.Clear(ctx, "acme", q); err != nil || done != (postadjudication.Purged{Letters: 4}) {
		t.Errorf("%+v, %v", done, err)
	}
	if n := r.Count(`SELECT count(*) FROM recourse.runs WHERE tenant = 'other' AND letter = 'open'`); n != 3 {
		t.Errorf("%d letters of another tenant are left", n)
	}
	if got := r.LetterStatus(letter); got != background.LetterOpen {
		t.Errorf("a letter of another family is %s", got)
	}
	r.MustAudit()
}

// Concurrent actions on a letter: the first wins, and the others are refused.
func TestPurgesForksAndHoldsOfOneLetterAtOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	for i := range 12 {
		letter := r.DeadLetter(i, rig.Refuses)
		q := refusedLetters()
		q.Filter.Transaction, q.Confirm = rig.Release(i).TransactionReceiptID, "1"
		var all sync.WaitGroup
		var forked, held bool
		var purged postadjudication.Purged
		all.Go(func() {
			_, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest)
			var refused *refusal.RefusedError
			if forked = err == nil; err != nil && !errors.Is(err, refusal.ErrNotFound) && !errors.As(err, &refused) {
				t.Errorf("fork: %v", err)
			}
		})
		all.Go(func() {
			_, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, letter.Run, holdReason)
			var refused *refusal.RefusedError
			if held = err == nil; err != nil && !errors.Is(err, refusal.ErrNotFound) && !errors.As(err, &refused) {
				t.Errorf("hold: %v", err)
			}
		})
		all.Go(func() {
			var err error
			var bad *refusal.FieldError
			if purged, err = r.Purge(ctx, "acme", q); err != nil && !errors.As(err, &bad) {
				t.Errorf("purge: %v", err)
			}
		})
		all.Wait()
		switch got := r.LetterStatus(letter); {
		case forked != (got == background.LetterForked), (purged.Letters == 1) != (got == background.LetterPurged), held && purged.Letters == 1, forked && purged.Letters == 1:
			t.Errorf("forked %v, held %v, purged %+v, and the letter is %s", forked, held, purged, got)
		}
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// A purged letter's case can be adjudicated again.
func TestAPurgedCaseIsAdjudicatedAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.DeadLetter(1, rig.Refuses)
	q := refusedLetters()
	q.Confirm = "1"
	if done, err := r.Purge(context.Background(), "acme", q); err != nil || done.Letters != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if s := r.MustSubmit(rig.Release(1)); s.Reply != postadjudication.DeadLettered {
		t.Errorf("the same again: %+v", s)
	}
	higher := rig.Release(1)
	higher.Generation = 2
	if s := r.MustSubmit(higher); s.Reply != postadjudication.Created {
		t.Errorf("%+v", s)
	}
	r.WaitNoneLive()
	if c := r.CaseOf(higher); c.Progression != settlement.Settled {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

// hookedArchive is an archive that calls a function once, after letters were read and before they
// are purged.
type hookedArchive struct {
	postadjudication.Archive
	hook func()
	once sync.Once
}

func (a *hookedArchive) Put(ctx context.Context, name string, content []byte) error {
	a.once.Do(a.hook)
	return a.Archive.Put(ctx, name, content)
}

// A letter that is held, marked otherwise or forked between reading and purging stays; one to
// which only a note was added is purged.
func TestAPurgeLeavesWhatItsFilterNoLongerSelects(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	same, held, marked, forked, noted := r.DeadLetter(1, rig.RateLimits), r.DeadLetter(2, rig.RateLimits),
		r.DeadLetter(3, rig.RateLimits), r.DeadLetter(4, rig.RateLimits), r.DeadLetter(5, rig.RateLimits)
	ctx := context.Background()
	archive := &hookedArchive{hook: func() {
		no, yes := false, true
		if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, holdReason); err != nil {
			t.Error(err)
		}
		if _, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, marked.Run, deadletter.Mark{Reason: "a person looks first", ReprocessEligible: &no}); err != nil {
			t.Error(err)
		}
		if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, forked.Run, rig.ForkRequest); err != nil {
			t.Error(err)
		}
		if _, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, noted.Run, deadletter.Mark{Reason: "as it was", ReprocessEligible: &yes}); err != nil {
			t.Error(err)
		}
	}}
	k := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withArchive(t), func(c *postadjudication.Config) { archive.Archive, c.Archive = c.Archive, archive })
	eligible := true
	q := refusedLetters()
	q.Filter = deadletter.Filter{Reprocess: &eligible}
	plan, err := k.As("acme", "user:ada").DeadLetters.PlanPurge(ctx, q)
	if err != nil || plan.Letters != 5 {
		t.Fatalf("%+v, %v", plan, err)
	}
	q.Confirm = strconv.Itoa(plan.Letters)
	if done, err := k.Purge(ctx, "acme", q); err != nil || done != (postadjudication.Purged{Letters: 2, ChangedMeanwhile: 3}) {
		t.Errorf("%+v, %v", done, err)
	}
	for name, want := range map[string]struct {
		of postadjudication.Submitted
		is background.LetterStatus
	}{
		"same": {same, background.LetterPurged}, "held": {held, background.LetterOpen}, "marked": {marked, background.LetterOpen},
		"forked": {forked, background.LetterForked}, "noted": {noted, background.LetterPurged},
	} {
		if got := r.LetterStatus(want.of); got != want.is {
			t.Errorf("%s: %s", name, got)
		}
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// hangingArchive takes files for ever.
type hangingArchive struct {
	postadjudication.Archive
	begun chan struct{}
}

func (a hangingArchive) Put(ctx context.Context, _ string, _ []byte) error {
	a.begun <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// An archive that does not answer ends a purge at its first file, and so does the caller.
func TestAPurgeIntoAnArchiveThatHangsEnds(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.DeadLetters(0, 3, rig.Refuses)
	away := hangingArchive{begun: make(chan struct{}, 8)}
	k := newRetentionRig(r, withArchive(t), func(c *postadjudication.Config) { away.Archive, c.Archive = c.Archive, away })
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		<-away.begun
		leave()
	}()
	q := refusedLetters()
	q.Confirm = "3"
	if done, err := k.Purge(ctx, "acme", q); !errors.Is(err, context.Canceled) || done.Letters != 0 || len(away.begun) != 0 {
		t.Errorf("%+v, %v, and %d more files", done, err, len(away.begun))
	}
	if n := r.Count(`SELECT count(*) FROM recourse.runs WHERE letter = 'open'`); n != 3 {
		t.Errorf("%d letters are open", n)
	}
}
