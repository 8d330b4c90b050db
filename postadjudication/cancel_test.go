package postadjudication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func TestCancelOfAPendingRunFreesItsReservation(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	s := r.MustSubmit(rig.Release(1))
	if st, err := rig.CancelRun(r, s); err != nil || st.State != background.Cancelled {
		t.Fatalf("%+v, %v", st, err)
	}
	if st, err := rig.CancelRun(r, s); err != nil || st.State != background.Cancelled {
		t.Errorf("twice: %+v, %v", st, err)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.ReviewNeeded || c.Reserved != 0 {
		t.Errorf("case %+v", c)
	}
	r.StartWorkers().WaitNoneLive()
	r.MustAudit()
}

// A sender that lost the first answer and repeats its decision after somebody cancelled it
// starts nothing.
func TestWhatIsCancelledStaysCancelled(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	s := r.MustSubmit(rig.Release(1))
	if _, err := rig.CancelRun(r, s); err != nil {
		t.Fatal(err)
	}
	r.StartWorkers()
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	inTx, err := r.SubmitTx(context.Background(), tx, rig.Release(1))
	if err := errors.Join(err, tx.Rollback()); err != nil {
		t.Fatal(err)
	}
	many, errs := r.SubmitBatch(context.Background(), []postadjudication.Adjudication{rig.Release(1), rig.Release(1)})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, again := range append(many, inTx, r.MustSubmit(rig.Release(1))) {
		if again.Reply != postadjudication.Cancelled || again.Reply.Accepted() || again.Run != s.Run || again.State != background.Cancelled ||
			again.Actor != "user:ada" || again.Reason != "the parties agreed" {
			t.Errorf("%+v", again)
		}
	}
	if n := r.CountRows("runs") + r.Escrow.TotalCalls(); n != 1 {
		t.Errorf("%d runs and calls", n)
	}
	other := rig.Release(1)
	other.AdjudicationID = "adj_other"
	if again := r.MustSubmit(other); again.Reply != postadjudication.RetryKeyMismatch {
		t.Errorf("other content: %+v", again)
	}
	higher := rig.Release(1)
	higher.Generation = 2
	if again := r.MustSubmit(higher); again.Reply != postadjudication.Created {
		t.Errorf("a higher generation: %+v", again)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// On a busy machine a wait may be over before the cancel: then another run is tried.
func TestCancelWhileWaitingInPlaceEndsTheWait(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.BaseDelay = 900 * time.Millisecond })
	r.Escrow.Answer(rig.RateLimits)
	r.StartWorkers()
	for n := 1; ; n++ {
		s := r.MustSubmit(rig.Release(n))
		r.WaitState(s.Run, background.Scheduled)
		st, err := rig.CancelRun(r, s)
		if err == nil && st.State == background.Cancelled {
			break
		}
		if err != nil || !st.CancelRequested || n == 20 {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	r.WaitNoneLive()
	if calls, attempts := r.Escrow.TotalCalls(), r.Count(`SELECT sum(attempt_count) FROM recourse.runs`); calls != attempts {
		t.Errorf("%d calls in %d attempts: one was made after the run was cancelled", calls, attempts)
	}
	r.MustAudit()
}

// A cancel of a running attempt is decided at its end: the run is cancelled if nothing can have
// been paid, otherwise the request has no effect.
func TestCancelOfARunningRunIsHonouredWhenNothingMayHaveBeenPaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(*rig.Rig, escrow.Call) escrow.Answer
		want   background.State
	}{
		"refused": {func(*rig.Rig, escrow.Call) escrow.Answer { return rig.RateLimited() }, background.Cancelled},
		"paid":    {func(r *rig.Rig, c escrow.Call) escrow.Answer { return r.Escrow.Pay(c, c.Amount.Minor) }, background.Succeeded},
		"lost": {func(r *rig.Rig, c escrow.Call) escrow.Answer {
			if c.Attempt == 1 {
				return rig.NoAnswer()
			}
			return r.Escrow.Pay(c, c.Amount.Minor)
		}, background.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t)
			called, answer := make(chan struct{}, 3), make(chan struct{})
			r.Escrow.Script(func(_ context.Context, call escrow.Call) escrow.Answer {
				called <- struct{}{}
				<-answer
				return c.answer(r, call)
			})
			s := r.StartWorkers().MustSubmit(rig.Release(1))
			<-called
			if st, err := rig.CancelRun(r, s); err != nil || !st.CancelRequested || st.State != background.Running {
				t.Fatalf("%+v, %v", st, err)
			}
			if st, err := r.As("acme", "user:bob").Cases.Cancel(context.Background(), s.Run, "me too"); err != nil || !st.CancelRequested {
				t.Fatalf("requested twice: %+v, %v", st, err)
			}
			close(answer)
			r.WaitNoneLive()
			if n := r.CountReceipts(rig.Receipts{Subtype: receipts.CancelRequested}); n != 1 {
				t.Errorf("%d receipts of a request to cancel", n)
			}
			if n := r.CountReceipts(rig.Receipts{Run: s.Run, Subtype: receipts.CancelRequested, Actor: "user:ada", Payload: map[string]any{"reason": "the parties agreed"}}); n != 1 {
				t.Errorf("%d receipts have who requested the cancel, and why", n)
			}
			st, err := r.Status(context.Background(), "acme", s.Run)
			if err != nil || st.State != c.want {
				t.Errorf("%+v, %v", st, err)
			}
			if n := r.CountReceipts(rig.Receipts{Subtype: receipts.Cancelled, Actor: "user:ada"}); (n == 1) != (c.want == background.Cancelled) {
				t.Errorf("%d receipts name who cancelled", n)
			}
			r.MustAudit()
			if n := r.CountReceipts(rig.Receipts{Subtype: receipts.CancelRequested, Actor: "user:ada"}); n != 1 {
				t.Errorf("%d receipts name who requested it", n)
			}
			rig.CheckAuditDetects(r, "who asked to cancel", `UPDATE recourse.runs SET cancel_by = 'user:eve'`, `UPDATE recourse.runs SET cancel_by = 'user:ada'`, "stored who asked to cancel user:eve")
		})
	}
}

// What somebody without a key asks of a run that is running, and is refused, is marked as all their receipts are.
func TestARequestToCancelAndARefusalAreMarkedSelfDeclared(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := postadjudication.WithCaller(context.Background(), postadjudication.Caller{SelfDeclared: true})
	called, answer := make(chan struct{}, 3), make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		called <- struct{}{}
		<-answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	<-called
	if st, err := r.As("acme", "user:ada").Cases.Cancel(ctx, s.Run, "the parties agreed"); err != nil || !st.CancelRequested {
		t.Fatalf("%+v, %v", st, err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, deadletter.Fork{Reason: "too early"}); !errors.As(err, new(*refusal.RefusedError)) {
		t.Fatalf("a fork of a running run: %v", err)
	}
	if err := r.RecordRefusal(ctx, postadjudication.AccessRefusal{Tenant: "acme", Actor: "user:ada", Action: "hold", Code: "role_missing", Run: s.Run}); err != nil {
		t.Fatal(err)
	}
	close(answer)
	r.WaitNoneLive()
	for subtype, want := range map[receipts.Subtype]int{receipts.CancelRequested: 1, receipts.Refused: 2} {
		payloads := r.Payloads(s, subtype)
		if len(payloads) != want {
			t.Errorf("%d receipts %s", len(payloads), subtype)
		}
		for _, p := range payloads {
			if !p.SelfDeclared {
				t.Errorf("%s is not marked: %+v", subtype, p)
			}
		}
	}
	r.MustAudit()
}

func TestCancelOfAnUnknownOutcomeIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.BaseDelay = time.Hour; c.Policy.MaxDelay = time.Hour })
	r.Escrow.Answer(rig.GivesNoAnswer)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Scheduled)
	if st, err := rig.CancelRun(r, s); !errors.Is(err, refusal.ErrReconcileFirst) || st.State != background.Scheduled {
		t.Errorf("%+v, %v", st, err)
	}
	r.MustAudit()
}

func TestCancelOfAnEndedRunIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Outcome == settlement.Refund {
			return rig.Refused()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.StartWorkers()
	for _, s := range []postadjudication.Submitted{r.MustSubmit(rig.Release(1)), r.MustSubmit(rig.Refund(2))} {
		r.WaitNoneLive()
		if st, err := rig.CancelRun(r, s); !errors.Is(err, refusal.ErrEnded) {
			t.Errorf("%+v, %v", st, err)
		}
	}
	if _, err := r.As("other", "user:eve").Cases.Cancel(context.Background(), r.MustSubmit(rig.Release(1)).Run, "mine"); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("another tenant's run: %v", err)
	}
	if _, err := r.As("", "user:eve").Cases.Cancel(context.Background(), r.MustSubmit(rig.Release(1)).Run, "all"); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("no tenant: %v", err)
	}
	r.MustAudit()
}

// A second request to cancel an attempt, or one after its end, leaves no receipt: it had no
// effect.
func TestARequestToCancelThatComesTooLateLeavesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	called, answer := make(chan struct{}), make(chan struct{})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		close(called)
		<-answer
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	<-called
	seen, err := r.Journal().Cases.Snapshot(context.Background(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(want bool) {
		t.Helper()
		draft := receipts.Draft{Actor: "user:ada", At: r.Now(), Payload: receipts.Payload{Attempt: 1, Reason: "stop"}}
		if asked, err := r.Journal().RequestCancel(context.Background(), seen.Run, draft); asked != want || err != nil {
			t.Errorf("asked %t, %v", asked, err)
		}
	}
	ask(true)
	ask(false)
	close(answer)
	r.WaitNoneLive()
	ask(false)
	if n := len(r.Payloads(s, receipts.CancelRequested)); n != 1 {
		t.Errorf("%d receipts of a request to cancel", n)
	}
	r.MustAudit()
}
