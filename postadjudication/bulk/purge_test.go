package bulk_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig/taskinspector"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// refusedLetters is a purge of the letters whose calls were refused.
func refusedLetters() bulk.Request {
	return bulk.Request{Action: bulk.Purge, Reason: "settled by hand", Filter: deadletter.Filter{ErrorType: "http.refused"}}
}

func TestAPurgeTakesWhatItsFilterSelectsAndWasCounted(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue, rig.WithArchive(t))
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	one, two, held := r.DeadLetter(1, rig.Refuses), r.DeadLetter(2, rig.Refuses), r.DeadLetter(3, rig.Refuses)
	other, unknown := r.DeadLetter(4, rig.RateLimits), r.DeadLetter(5, func(escrow.Call) escrow.Answer {
		a := rig.Refused()
		a.Class = escrow.Unknown
		return a
	})
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	taskinspector.WaitArchived(r, taskinspector.New(r), 5, rig.OnlyQueue)
	q := refusedLetters()
	plan := r.MustPlan(q)
	if plan.Ready != 2 || plan.Refused[refusal.GateHeld] != 1 || plan.Refused[refusal.GateReconcileFirst] != 1 || plan.Money["EUR"] != settlement.SumOf(2000) {
		t.Fatalf("%+v", plan)
	}
	alone := r.As("acme", "user:ada").Bulk
	for _, hash := range []string{"", "2", plan.Hash[1:], "0" + plan.Hash[:63], "0" + plan.Hash} {
		var bad *refusal.FieldError
		if b, err := alone.RunHere(rig.AsOnePerson(ctx), plan.ID, hash); !errors.As(err, &bad) || bad.Field != "hash" {
			t.Errorf("%q: %+v, %v", hash, b, err)
		}
	}
	if p := must(alone.RunHere(rig.AsOnePerson(ctx), plan.ID, plan.Hash))(r).Progress; p.Done != 2 || p.ByGate[refusal.GateHeld] != 1 || p.ByGate[refusal.GateReconcileFirst] != 1 || p.Money["EUR"] != settlement.SumOf(2000) {
		t.Errorf("%+v", p)
	}
	for i, letter := range []postadjudication.Submitted{one, two, held, other, unknown} {
		if got := r.LetterStatus(letter); (got == background.LetterPurged) != (i < 2) {
			t.Errorf("letter %d is %s", i+1, got)
		}
	}
	payloads := r.Payloads(one, receipts.Purged)
	if len(payloads) != 1 || payloads[0].Reason != q.Reason || payloads[0].Archive == "" || payloads[0].People != 1 || payloads[0].Bulk != plan.ID.String() || payloads[0].PlannedBy != "user:ada" {
		t.Errorf("%+v", payloads)
	}
	taskinspector.WaitArchived(r, taskinspector.New(r), 3, rig.OnlyQueue)
	if n, err := r.As("acme", "").DeadLetters.Count(ctx, deadletter.Filter{ErrorType: "http.refused"}); err != nil || n.Total != 2 {
		t.Errorf("%+v are listed, %v", n, err)
	}
	if b := must(alone.RunHere(rig.AsOnePerson(ctx), plan.ID, plan.Hash))(r); b.State != bulk.Done || b.Progress.Done != 2 {
		t.Errorf("again: %+v", b)
	}
	r.MustAudit()
}

// must returns a plan, or fails the test with the error.
func must(b bulk.Plan, err error) func(*rig.Rig) bulk.Plan {
	return func(r *rig.Rig) bulk.Plan {
		r.T.Helper()
		if err != nil {
			r.T.Fatal(err)
		}
		return b
	}
}

// A purge that finds nothing to purge counts the skipped letters as its plan did, and takes one
// person less than two only if the tenant says so.
func TestAPurgeOfTwoPeopleCountsWhatItSkips(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue, rig.WithArchive(t))
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	held := r.DeadLetter(1, rig.Refuses)
	r.DeadLetter(2, func(escrow.Call) escrow.Answer {
		a := rig.Refused()
		a.Class = escrow.Unknown
		return a
	})
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	plan := r.MustPlan(refusedLetters())
	if plan.Ready != 0 || plan.People != 2 {
		t.Errorf("%+v", plan)
	}
	if p := must(r.As("acme", "user:bob").Bulk.RunHere(ctx, plan.ID, plan.Hash))(r).Progress; p.Done != 0 || p.ByGate[refusal.GateHeld] != 1 || p.ByGate[refusal.GateReconcileFirst] != 1 {
		t.Errorf("%+v", p)
	}
}

func TestAPurgeThatSaysTooLittleChangesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	ctx := context.Background()
	var bad *refusal.FieldError
	for field, change := range map[string]func(*acting, *bulk.Request){
		"tenant": func(who *acting, q *bulk.Request) { who.tenant = "" },
		"actor":  func(who *acting, q *bulk.Request) { who.actor = "" }, "reason": func(who *acting, q *bulk.Request) { q.Reason = "" },
		"filter": func(who *acting, q *bulk.Request) { q.Filter = deadletter.Filter{} }, "letter": func(who *acting, q *bulk.Request) { q.Filter.Status = background.LetterForked },
		"outcome_class": func(who *acting, q *bulk.Request) { q.Filter.Class = "unknow" },
	} {
		q, who := refusedLetters(), acting{"acme", "user:ada"}
		change(&who, &q)
		if _, err := r.As(who.tenant, who.actor).Bulk.Plan(ctx, q); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	q := refusedLetters()
	q.Filter = deadletter.Filter{Family: "setlement"}
	plansNothing(r, q)
	plan := r.MustPlan(refusedLetters())
	if _, err := r.As("acme", "").Bulk.RunHere(ctx, plan.ID, plan.Hash); !errors.As(err, &bad) || bad.Field != "actor" {
		t.Errorf("no actor: %v", err)
	}
	for _, tenant := range []string{"", "other"} {
		if _, err := r.As(tenant, "user:bob").Bulk.RunHere(ctx, plan.ID, plan.Hash); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
	hold := r.MustPlan(rig.AllLetters(bulk.Hold))
	if _, err := r.As("acme", "user:bob").Bulk.RunHere(ctx, hold.ID, hold.Hash); !errors.As(err, &bad) || bad.Field != "action" {
		t.Errorf("a hold: %v", err)
	}
	if got := r.LetterStatus(letter); got != background.LetterOpen {
		t.Errorf("the letter is %s", got)
	}
}

// A purge of a family whose archive fails is paused with the cause. Who runs it again continues it.
func TestAPurgeOfAFamilyOfOneTenantGoesOnWhereItStopped(t *testing.T) {
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
	away := &failingArchive{}
	away.away.Store(true)
	k := r.NewPruner(chores, rig.WithArchive(t), func(c *postadjudication.Config) { away.Archive, c.Archive = c.Archive, away })
	k.As("", "").Bulk.LimitArchive(archiveLimit)
	b, err := k.Purge(ctx, deadletter.Filter{Family: "chores"})
	checkBulkState(r, b, err, bulk.Paused)
	if b.Items != 4 || len(b.Money) != 0 || b.Progress.Pending != 4 || b.ChangedBy != "system:bulk" || !strings.Contains(b.ChangedReason, rig.ErrRejected.Error()) || len(k.Files()) != 0 {
		t.Errorf("%+v, and the files %v", b, k.Files())
	}
	away.away.Store(false)
	if b, err = k.As("acme", "user:ada").Bulk.RunHere(rig.AsOnePerson(ctx), b.ID, b.Hash); err != nil || b.State != bulk.Done || b.Progress.Done != 4 {
		t.Errorf("%+v, %v", b, err)
	}
	checkPlanReceipts(r, b, "user:ada none to planned", "user:ada planned to running", "system:bulk running to paused", "user:ada paused to running", "system:bulk running to done")
	if n := r.CountRuns(rig.Runs{Tenant: "other", Letter: background.LetterOpen}); n != 3 {
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
		var all sync.WaitGroup
		var forked, held bool
		var purged bulk.Plan
		all.Go(func() {
			_, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest)
			var refused *refusal.RefusedError
			if forked = err == nil; err != nil && !errors.Is(err, refusal.ErrNotFound) && !errors.As(err, &refused) {
				t.Errorf("fork: %v", err)
			}
		})
		all.Go(func() {
			_, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, letter.Run, "the auditors asked for it")
			var refused *refusal.RefusedError
			if held = err == nil; err != nil && !errors.Is(err, refusal.ErrNotFound) && !errors.As(err, &refused) {
				t.Errorf("hold: %v", err)
			}
		})
		all.Go(func() {
			var err error
			var nothing *bulk.NothingSelectedError
			if purged, err = r.Purge(ctx, deadletter.Filter{Transaction: rig.Release(i).TransactionReceiptID}); err != nil && !errors.As(err, &nothing) {
				t.Errorf("purge: %v", err)
			}
		})
		all.Wait()
		switch got := r.LetterStatus(letter); {
		case forked != (got == background.LetterForked), (purged.Progress.Done == 1) != (got == background.LetterPurged), held && purged.Progress.Done == 1, forked && purged.Progress.Done == 1:
			t.Errorf("forked %v, held %v, purged %+v, and the letter is %s", forked, held, purged.Progress, got)
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
	r.MustPurge(deadletter.Filter{ErrorType: "http.refused"}, 1)
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
	retention.Archive
	hook func()
	once sync.Once
}

func (a *hookedArchive) Put(ctx context.Context, name string, content []byte) error {
	a.once.Do(a.hook)
	return a.Archive.Put(ctx, name, content)
}

// A letter that is held, marked or forked between reading and purging stays, whether the filter
// still selects it or not: it is not as it was planned.
func TestAPurgeLeavesWhatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	same, held, marked, forked, noted := r.DeadLetter(1, rig.RateLimits), r.DeadLetter(2, rig.RateLimits),
		r.DeadLetter(3, rig.RateLimits), r.DeadLetter(4, rig.RateLimits), r.DeadLetter(5, rig.RateLimits)
	ctx := context.Background()
	archive := &hookedArchive{hook: func() {
		no, yes := false, true
		if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, "the auditors asked for it"); err != nil {
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
	k := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, rig.WithArchive(t), func(c *postadjudication.Config) { archive.Archive, c.Archive = c.Archive, archive })
	eligible := true
	if b, err := k.Purge(ctx, deadletter.Filter{Reprocess: &eligible}); err != nil || b.Ready != 5 || b.Progress.Done != 1 || b.Progress.PlanStale != 4 {
		t.Errorf("%+v, %v", b, err)
	}
	for name, want := range map[string]struct {
		of postadjudication.Submitted
		is background.LetterStatus
	}{
		"same": {same, background.LetterPurged}, "held": {held, background.LetterOpen}, "marked": {marked, background.LetterOpen},
		"forked": {forked, background.LetterForked}, "noted": {noted, background.LetterOpen},
	} {
		if got := r.LetterStatus(want.of); got != want.is {
			t.Errorf("%s: %s", name, got)
		}
	}
	r.WaitNoneLive()
	r.MustAudit()
}
