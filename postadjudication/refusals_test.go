package postadjudication_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Every refusal by a gate leaves a receipt of who asked for what and why not: one per content and
// day, however often and by however many at once it is asked.
func TestWhatAGateRefusesIsInTheTrailOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, rig.Refuses)
	r.MustFork(letter)
	r.WaitNoneLive()
	yes := true
	lookedUp := r.DeadLetter(2, rig.Refuses)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer { return r.Escrow.Pay(c, c.Amount.Minor) })
	paid := r.MustSubmit(rig.Release(3))
	r.WaitNoneLive()
	for _, c := range []struct {
		of        postadjudication.Submitted
		asked, by string
		do        func() error
	}{
		{letter, "fork", "not_open", func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, deadletter.Fork{Reason: "again"})
			return err
		}},
		{letter, "fork", "not_open", func() error {
			_, err := r.As("acme", "user:bob").DeadLetters.Fork(ctx, letter.Run, deadletter.Fork{Reason: "again"})
			return err
		}},
		{letter, "reconcile", "not_open", func() error {
			_, err := r.Reconcile(ctx, "acme", letter.Run, deadletter.Finding{Reason: "bank", Class: escrow.NotExecuted, Reference: "stmt-1"})
			return err
		}},
		{letter, "lookup", "not_open", func() error { _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, letter.Run); return err }},
		{letter, "hold", "not_open", func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, letter.Run, holdReason)
			return err
		}},
		{lookedUp, "release", "not_held", func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Release(ctx, lookedUp.Run, holdReason)
			return err
		}},
		{letter, "mark", "not_open", func() error {
			_, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, letter.Run, deadletter.Mark{Reason: "worth it", ReprocessEligible: &yes})
			return err
		}},
		{paid, "cancel", "ended", func() error { _, err := rig.CancelRun(r, paid); return err }},
	} {
		before := len(r.Payloads(c.of, receipts.Refused))
		var together sync.WaitGroup
		for range 8 {
			together.Go(func() {
				var gate *refusal.RefusedError
				if err := c.do(); !errors.As(err, &gate) && !errors.Is(err, refusal.ErrEnded) {
					t.Errorf("%s: %v", c.asked, err)
				}
			})
		}
		together.Wait()
		payloads := r.Payloads(c.of, receipts.Refused)
		if len(payloads) != before+1 {
			t.Errorf("%s: %d receipts, want one more than %d", c.asked, len(payloads), before)
			continue
		}
		if last := payloads[before]; last.AskedFor != c.asked || last.RefusedBy != c.by {
			t.Errorf("%s: the receipt says %s refused by %s", c.asked, last.AskedFor, last.RefusedBy)
		}
	}
	r.MustAudit()
}

// If the receipt of a refusal can't be written, the refusal is not returned.
func TestARefusalThatCanNotBeRecordedIsAnError(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	r.MustFork(letter)
	r.WaitNoneLive()
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`SELECT FROM recourse.cases WHERE id = $1 FOR NO KEY UPDATE`, letter.Case.String()); err != nil {
		t.Fatal(err)
	}
	var gate *refusal.RefusedError
	if _, err := retry(r, letter.Run); err == nil || errors.As(err, &gate) {
		t.Errorf("while the case is held: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, deadletter.Fork{Reason: "again"}); !errors.As(err, &gate) {
		t.Errorf("afterwards: %v", err)
	}
	r.MustAudit()
}
