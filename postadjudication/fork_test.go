package postadjudication_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

func TestAForkReallyExecutes(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	q := rig.ForkRequest
	q.Policy = &retrypolicy.Policy{MaxRetryAttempts: 5}
	f, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, q)
	if err != nil || f.Run == letter.Run {
		t.Fatalf("%+v, %v", f, err)
	}
	r.WaitNoneLive()
	c := r.CaseOf(rig.Release(1))
	if c.Progression != settlement.Settled || len(c.Runs) != 2 || c.Runs[0].Letter != background.LetterForked || c.Runs[1].Policy.MaxRetryAttempts != 5 {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

// While the escrow service knows the key of an unknown outcome, a list, a condition and the letter itself say that it can be forked, as
// the fork does; past that time each names the same gate.
func TestAListSaysOfAnUnknownOutcomeWhatTheForkDoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		life time.Duration
		gate refusal.Gate
	}{{escrow.Forever, ""}, {0, refusal.GateReconcileFirst}} {
		r := rig.New(t).StartWorkers()
		r.Escrow.ScriptLookups(rig.GivesNoAnswer)
		letter := r.DeadLetter(1, rig.GivesNoAnswer)
		r.Escrow.SetKeyLife(c.life)
		letters := r.As("acme", "user:ada").DeadLetters
		found, err := letters.Search(context.Background(), deadletter.Search{Where: "can_fork", Limit: 10})
		if err != nil || len(found.Letters) == 1 != (c.gate == "") {
			t.Errorf("key lifetime %s: a condition finds %+v, %v", c.life, found.Letters, err)
		}
		seen, err := letters.Inspect(context.Background(), letter.Run)
		if err != nil || seen.Actions[0].RefusedBy != c.gate || seen.Letter.RefusedBy != c.gate {
			t.Errorf("key lifetime %s: the letter says %+v, %+v, %v", c.life, seen.Actions[0], seen.Letter, err)
		}
		if l := r.Letters(deadletter.Filter{}); len(l) != 1 || l[0].RefusedBy != c.gate || l[0].CanFork != (c.gate == "") {
			t.Errorf("key lifetime %s: the list says %+v", c.life, l)
		}
		var refused *refusal.RefusedError
		if _, err := letters.Fork(context.Background(), letter.Run, rig.ForkRequest); c.gate == "" != (err == nil) || err != nil && (!errors.As(err, &refused) || refused.Gate != c.gate) {
			t.Errorf("key lifetime %s: fork: %v", c.life, err)
		}
	}
}

// Of many people who fork a letter at once, one succeeds; the errors of the others name the
// fork.
func TestManyForksOfOneLetterMakeOne(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.RateLimits)
	var all sync.WaitGroup
	won := make(chan deadletter.Forked, 20)
	for range 20 {
		all.Go(func() {
			f, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, rig.ForkRequest)
			var refused *refusal.RefusedError
			switch {
			case err == nil:
				won <- f
			case !errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen || refused.Letter != background.LetterForked || refused.ActiveRun == letter.Run:
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Errorf("%d forks", len(won))
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// If the fork dies, its letter is the open one.
func TestAForkThatDiesLeavesItsOwnLetter(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	r.Escrow.Answer(rig.Refuses)
	f, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if st, err := r.Status(context.Background(), "acme", f.Run); err != nil || st.Letter != background.LetterOpen {
		t.Errorf("%+v, %v", st, err)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.DisputeReady || c.Lifecycle != settlement.ReEscalated || c.Reserved != 1000 {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

// A letter of unknown money can't be forked after the key's lifetime until a finding resolves
// it.
func TestUnknownMoneyIsReconciledBeforeItIsForked(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.SetKeyLife(time.Second)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	letter := r.DeadLetter(1, rig.GivesNoAnswer)
	ctx := context.Background()
	var refused *refusal.RefusedError
	<-time.After(time.Second) // the key's lifetime, which this test needs to pass
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst {
		t.Fatalf("fork of unknown money: %v", err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, letter.Run); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst {
		t.Errorf("a lookup that can't tell: %v", err)
	}
	c, err := r.Reconcile(ctx, "acme", letter.Run, deadletter.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7"})
	if err != nil || c.UnknownOpen != 0 || c.Progression != settlement.DisputeReady {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled {
		t.Errorf("case %+v", c)
	}
	r.MustAudit()
}

// A finding that it was paid settles the case and closes the letter, by a person or by a
// lookup.
func TestAFindingThatItWasPaidSettles(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	lost := func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.NoAnswer() }
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	byPerson, byLookup := r.DeadLetter(1, lost), r.DeadLetter(2, lost)
	ctx := context.Background()
	c, err := r.Reconcile(ctx, "acme", byPerson.Run, deadletter.Finding{Reason: "the bank's statement", Class: escrow.Executed, Moved: 1000, Reference: "stmt-7"})
	if err != nil || c.Progression != settlement.Settled || c.Runs[0].Letter != background.LetterReconciled {
		t.Errorf("%+v, %v", c, err)
	}
	r.Escrow.ScriptLookups(nil)
	if c, err = r.As("acme", "user:ada").DeadLetters.Lookup(ctx, byLookup.Run); err != nil || c.Progression != settlement.Settled {
		t.Errorf("%+v, %v", c, err)
	}
	var refused *refusal.RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, byPerson.Run, rig.ForkRequest); !errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen {
		t.Errorf("fork of a reconciled letter: %v", err)
	}
	r.MustAudit()
}

// A finding about a letter that is forked at the same time is refused with the fork's name; a
// finding that comes first does not prevent a fork.
func TestFindingsAndForksOfOneLetterAtOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	for i := range 10 {
		letter := r.DeadLetter(i, rig.Refuses)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				_, err := r.Reconcile(ctx, "acme", letter.Run, deadletter.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7"})
				var refused *refusal.RefusedError
				if err != nil && (!errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen) {
					t.Errorf("finding: %v", err)
				}
			})
		}
		all.Go(func() {
			if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest); err != nil {
				t.Errorf("fork: %v", err)
			}
		})
		all.Wait()
	}
	r.WaitNoneLive()
	r.MustAudit()
}

func TestAForkOfWhatIsNoOpenLetterIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	s := r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	ctx := context.Background()
	var refused *refusal.RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, rig.ForkRequest); !errors.As(err, &refused) || refused.Gate != refusal.GateNotALetter {
		t.Errorf("a run that succeeded: %v", err)
	}
	for _, tenant := range []string{"", "other"} {
		if _, err := r.As(tenant, "user:ada").DeadLetters.Fork(ctx, s.Run, rig.ForkRequest); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
	var field *refusal.FieldError
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, deadletter.Fork{}); !errors.As(err, &field) || field.Field != "reason" {
		t.Errorf("without a reason: %v", err)
	}
}

func TestLettersAreListedNewestFirstInPages(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	const n = 7
	for i := range n {
		r.DeadLetter(i, func(c escrow.Call) escrow.Answer {
			if i%2 == 0 {
				return rig.Refused()
			}
			return rig.RateLimited()
		})
	}
	ctx := context.Background()
	var all []deadletter.Letter
	for q := (deadletter.Query{Limit: 3}); ; {
		page, err := r.As("acme", "").DeadLetters.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Letters...)
		if q.After = page.Next; !page.More {
			break
		}
	}
	if len(all) != n {
		t.Fatalf("%d letters", len(all))
	}
	for i, l := range all {
		if i > 0 && l.DeadAt.After(all[i-1].DeadAt) || !l.CanFork || l.AtRisk == nil || l.AtRisk.Minor != 1000 {
			t.Errorf("letter %d: %+v", i, l)
		}
	}
	for filter, want := range map[deadletter.Filter]int{
		{ReasonCode: background.ReasonFinal}: 4, {ReasonCode: background.ReasonRetryExhausted}: 3, {ErrorType: "http.refused"}: 4,
		{Class: escrow.Unknown}: 0, {Status: background.LetterForked}: 0, {Transaction: "txr_3"}: 1, {Outcome: "refund"}: 0,
		{From: all[2].DeadAt}: 3, {To: all[2].DeadAt}: 4,
	} {
		page, err := r.As("acme", "").DeadLetters.List(ctx, deadletter.Query{Filter: filter, Limit: 100})
		if err != nil || len(page.Letters) != want {
			t.Errorf("%+v: %d letters, %v; want %d", filter, len(page.Letters), err, want)
		}
		if count, err := r.As("acme", "").DeadLetters.Count(ctx, filter); err != nil || count.Total != int64(want) {
			t.Errorf("%+v: counted %+v, %v; want %d", filter, count, err, want)
		}
	}
	if page, err := r.As("other", "").DeadLetters.List(ctx, deadletter.Query{Limit: 100}); err != nil || len(page.Letters) != 0 {
		t.Errorf("another tenant sees %d letters, %v", len(page.Letters), err)
	}
	var field *refusal.FieldError
	if _, err := r.As("", "").DeadLetters.List(ctx, deadletter.Query{Limit: 100}); !errors.As(err, &field) || field.Field != "tenant" {
		t.Errorf("no tenant: %v", err)
	}
}
