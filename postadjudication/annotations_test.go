package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
)

const holdReason = "the auditors asked for it"

func TestAHoldIsPlacedAndReleasedWithItsReceipts(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	ctx := context.Background()
	var refused *refusal.RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Release(ctx, letter.Run, holdReason); !errors.As(err, &refused) || refused.Gate != refusal.GateNotHeld {
		t.Errorf("release of a letter that is not held: %v", err)
	}
	d, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, letter.Run, holdReason)
	if err != nil || !d.Held || d.HoldReason != holdReason || d.ExpiresAt != nil {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, letter.Run, holdReason); !errors.As(err, &refused) || refused.Gate != refusal.GateHeld {
		t.Errorf("held again: %v", err)
	}
	if again, err := r.As("acme", "").DeadLetters.Annotations(ctx, letter.Run); err != nil || again != d {
		t.Errorf("%+v, %v", again, err)
	}
	if d, err = r.As("acme", "user:ada").DeadLetters.Release(ctx, letter.Run, holdReason); err != nil || d.Held || d.HoldReason != "" || d.ExpiresAt == nil {
		t.Errorf("%+v, %v", d, err)
	}
	placed, released := r.Payloads(letter, receipts.HoldPlaced), r.Payloads(letter, receipts.HoldReleased)
	if len(placed) != 1 || len(released) != 1 || placed[0].Reason != holdReason {
		t.Errorf("%+v, %+v", placed, released)
	}
	r.MustAudit()
}

// A letter that is held after its expiry was announced, and released after that expiry, is
// announced again and gets the full notice time.
func TestALetterReleasedFromItsHoldIsAnnouncedAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	ctx := context.Background()
	k := r.NewPruner(rig.WithArchive(t)).At(174 * day)
	k.MustPrune(retention.Report{Announced: 1})
	if _, err := k.As("acme", "user:ada").DeadLetters.Hold(ctx, letter.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	k.At(300 * day).MustPrune(retention.Report{})
	if _, err := k.As("acme", "user:ada").DeadLetters.Release(ctx, letter.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	r.MustAudit()
	of := ` WHERE run_id = '` + letter.Run.String() + `'`
	rig.CheckAuditDetects(r, "the expiry from before the hold is restored", `UPDATE recourse.annotations SET announced = true, ends_at = dead_at + interval '180 days' FROM recourse.runs WHERE id = run_id AND run_id = '`+letter.Run.String()+`'`,
		`UPDATE recourse.annotations SET announced = false, ends_at = NULL`+of, "the receipts say nothing")
	k.MustPrune(retention.Report{Announced: 1})
	payloads := k.Payloads(letter, receipts.RetentionEnding)
	if len(payloads) != 2 || payloads[1].ExpiresAt.Before(k.Now().Add(6*day)) {
		t.Errorf("%+v", payloads)
	}
	k.At(306 * day).MustPrune(retention.Report{})
	k.At(308 * day).MustPrune(retention.Report{Pruned: 1})
	r.MustAudit()
}

func TestAHoldNeedsSomebodyAReasonAndAnOpenLetter(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter, paid := r.DeadLetter(1, rig.Refuses), r.MustSubmit(rig.Release(2))
	r.WaitNoneLive()
	ctx := context.Background()
	for field, c := range map[string]struct{ actor, reason string }{"actor": {"", "x"}, "reason": {"user:ada", " "}} {
		var bad *refusal.FieldError
		if _, err := r.As("acme", c.actor).DeadLetters.Hold(ctx, letter.Run, c.reason); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := r.As("acme", c.actor).DeadLetters.Release(ctx, letter.Run, c.reason); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, tenant := range []string{"", "other"} {
		if _, err := r.As(tenant, "user:ada").DeadLetters.Hold(ctx, letter.Run, holdReason); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
	var refused *refusal.RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, paid.Run, holdReason); !errors.As(err, &refused) || refused.Gate != refusal.GateNotALetter {
		t.Errorf("hold of a run that succeeded: %v", err)
	}
	if n := r.CountRows("annotations"); n != 0 {
		t.Errorf("%d rows of annotations", n)
	}
	r.MustAudit()
}

// A hold keeps the evidence, not the money: a person who names the letter may fork it.
func TestAPersonMayForkAHeldLetter(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(context.Background(), letter.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	var refused *refusal.RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(context.Background(), letter.Run, holdReason); !errors.As(err, &refused) || refused.Gate != refusal.GateNotOpen || refused.Letter != background.LetterForked {
		t.Errorf("hold of a forked letter: %v", err)
	}
	r.MustAudit()
}

func TestOfManyWhoHoldAtOnceOneDoes(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			var refused *refusal.RefusedError
			if _, err := r.As("acme", "user:ada").DeadLetters.Hold(context.Background(), letter.Run, holdReason); err != nil && (!errors.As(err, &refused) || refused.Gate != refusal.GateHeld) {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if n := len(r.Payloads(letter, receipts.HoldPlaced)); n != 1 {
		t.Errorf("%d receipts", n)
	}
	r.MustAudit()
}

// A process without the family does not know how long its letters are kept.
func TestTheEndOfALetterIsNotMadeUp(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: failTask}}
	}).StartWorkers()
	ctx := context.Background()
	task, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "chores"})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if d, err := r.As("acme", "").DeadLetters.Annotations(ctx, task.Run); err != nil || d.ExpiresAt == nil || !d.ExpiresAt.After(*r.StatusOf(task.Run).DeadAt) {
		t.Errorf("%+v, %v", d, err)
	}
	elsewhere := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow)
	if d, err := elsewhere.As("acme", "").DeadLetters.Annotations(ctx, task.Run); err != nil || d.ExpiresAt != nil {
		t.Errorf("in a process without the family: %+v, %v", d, err)
	}
}

func TestNoSecretOfAPersonEntersTheAnnotations(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	d, err := r.As("acme", "user:ada").DeadLetters.Hold(context.Background(), letter.Run, "paid with card 4111 1111 1111 1111")
	if err != nil || strings.Contains(d.HoldReason, "4111") {
		t.Errorf("%+v, %v", d, err)
	}
	if p := r.Payloads(letter, receipts.HoldPlaced); strings.Contains(p[0].Reason, "4111") {
		t.Errorf("the receipt says %q", p[0].Reason)
	}
}

func ptr[T any](v T) *T { return &v }

func TestMarksFollowFromTheDeathUntilSomebodySaysOtherwise(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	spent, final, unknown := r.DeadLetter(1, rig.RateLimits), r.DeadLetter(2, rig.Refuses), r.DeadLetter(3, rig.GivesNoAnswer)
	ctx := context.Background()
	for _, c := range []struct {
		letter            postadjudication.Submitted
		reprocess, review bool
	}{{spent, true, false}, {final, false, false}, {unknown, false, true}} {
		if d, err := r.As("acme", "").DeadLetters.Annotations(ctx, c.letter.Run); err != nil || d.ReprocessEligible != c.reprocess || d.ManualReviewRequired != c.review || d.MarkReason != "" {
			t.Errorf("%+v, %v", d, err)
		}
	}
	for _, c := range []struct {
		filter deadletter.Filter
		want   int64
	}{{deadletter.Filter{Reprocess: ptr(true)}, 1}, {deadletter.Filter{Review: ptr(true)}, 1}, {deadletter.Filter{Reprocess: ptr(false), Review: ptr(false)}, 1}} {
		if n, err := r.As("acme", "").DeadLetters.Count(ctx, c.filter); err != nil || n.Total != c.want {
			t.Errorf("%+v: %+v, %v", c.filter, n, err)
		}
	}
	q := deadletter.Mark{Reason: "the account is open again", ReprocessEligible: ptr(true)}
	if d, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, final.Run, q); err != nil || !d.ReprocessEligible || d.ManualReviewRequired || d.MarkReason != q.Reason {
		t.Errorf("%+v, %v", d, err)
	}
	q = deadletter.Mark{Reason: "look at the contract first", ManualReviewRequired: ptr(true)}
	if d, err := r.As("acme", "user:ben").DeadLetters.Mark(ctx, final.Run, q); err != nil || !d.ReprocessEligible || !d.ManualReviewRequired || d.MarkReason != q.Reason {
		t.Errorf("%+v, %v", d, err)
	}
	payloads := r.Payloads(final, receipts.Marked)
	if len(payloads) != 2 || payloads[0].Changes != "reprocess_eligible=true" || payloads[1].Changes != "manual_review_required=true" {
		t.Errorf("%+v", payloads)
	}
	r.MustAudit()
}

// A mark opens no gate: a marked letter of unknown money still needs reconciling.
func TestAMarkIsNoKey(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.SetKeyLife(0)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	letter := r.DeadLetter(1, rig.GivesNoAnswer)
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, letter.Run, deadletter.Mark{Reason: "sure", ReprocessEligible: ptr(true), ManualReviewRequired: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	var refused *refusal.RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest); !errors.As(err, &refused) || refused.Gate != refusal.GateReconcileFirst {
		t.Errorf("%v", err)
	}
	r.MustAudit()
}

func TestAMarkSaysSomethingAndWhy(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	for field, q := range map[string]deadletter.Mark{"actor": {Reason: "x", ReprocessEligible: ptr(true)}, "reason": {ReprocessEligible: ptr(true)}, "marks": {Reason: "x"}} {
		actor := "user:ada"
		if field == "actor" {
			actor = ""
		}
		var bad *refusal.FieldError
		if _, err := r.As("acme", actor).DeadLetters.Mark(context.Background(), letter.Run, q); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if n := len(r.Payloads(letter, receipts.Marked)); n != 0 {
		t.Errorf("%d receipts", n)
	}
}
