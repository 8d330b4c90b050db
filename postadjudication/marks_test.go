package postadjudication

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/receipts"
)

func ptr[T any](v T) *T { return &v }

func TestMarksFollowFromTheDeathUntilSomebodySaysOtherwise(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.lookup = func(Call) Answer { return noAnswer() }
	r.startWorkers()
	spent, final, unknown := r.deadLetter(1, func(Call) Answer { return busy429() }), r.deadLetter(2, func(Call) Answer { return refused() }), r.deadLetter(3, func(Call) Answer { return noAnswer() })
	ctx := context.Background()
	for _, c := range []struct {
		letter            Submitted
		reprocess, review bool
	}{{spent, true, false}, {final, false, false}, {unknown, false, true}} {
		if d, err := r.Annotations(ctx, "acme", c.letter.Run); err != nil || d.ReprocessEligible != c.reprocess || d.ManualReviewRequired != c.review || d.MarkReason != "" {
			t.Errorf("%+v, %v", d, err)
		}
	}
	for _, c := range []struct {
		filter LetterFilter
		want   int64
	}{{LetterFilter{Reprocess: ptr(true)}, 1}, {LetterFilter{Review: ptr(true)}, 1}, {LetterFilter{Reprocess: ptr(false), Review: ptr(false)}, 1}} {
		if n, err := r.CountLetters(ctx, "acme", c.filter); err != nil || n.Total != c.want {
			t.Errorf("%+v: %+v, %v", c.filter, n, err)
		}
	}
	q := MarkRequest{Actor: "user:ada", Reason: "the account is open again", ReprocessEligible: ptr(true)}
	if d, err := r.Mark(ctx, "acme", final.Run, q); err != nil || !d.ReprocessEligible || d.ManualReviewRequired || d.MarkReason != q.Reason {
		t.Errorf("%+v, %v", d, err)
	}
	q = MarkRequest{Actor: "user:ben", Reason: "look at the contract first", ManualReviewRequired: ptr(true)}
	if d, err := r.Mark(ctx, "acme", final.Run, q); err != nil || !d.ReprocessEligible || !d.ManualReviewRequired || d.MarkReason != q.Reason {
		t.Errorf("%+v, %v", d, err)
	}
	payloads := r.payloadsOf(final, receipts.Marked)
	if len(payloads) != 2 || payloads[0].Changes != "reprocess_eligible=true" || payloads[1].Changes != "manual_review_required=true" {
		t.Errorf("%+v", payloads)
	}
	r.mustAudit()
}

// A mark opens no gate: unknown money that is marked stays to be reconciled.
func TestAMarkIsNoKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.keyLifetime = 0
	r.escrow.lookup = func(Call) Answer { return noAnswer() }
	r.startWorkers()
	letter := r.deadLetter(1, func(Call) Answer { return noAnswer() })
	ctx := context.Background()
	if _, err := r.Mark(ctx, "acme", letter.Run, MarkRequest{Actor: "user:ada", Reason: "sure", ReprocessEligible: ptr(true), ManualReviewRequired: ptr(false)}); err != nil {
		t.Fatal(err)
	}
	var refusal *RefusedError
	if _, err := r.Fork(ctx, "acme", letter.Run, forkRequest); !errors.As(err, &refusal) || refusal.Gate != GateReconcileFirst {
		t.Errorf("%v", err)
	}
	r.mustAudit()
}

func TestAMarkSaysSomethingAndWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	letter := r.deadLetter(1, func(Call) Answer { return refused() })
	for field, q := range map[string]MarkRequest{
		"actor": {Reason: "x", ReprocessEligible: ptr(true)}, "reason": {Actor: "user:ada", ReprocessEligible: ptr(true)}, "marks": {Actor: "user:ada", Reason: "x"},
	} {
		var bad *FieldError
		if _, err := r.Mark(context.Background(), "acme", letter.Run, q); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if n := len(r.payloadsOf(letter, receipts.Marked)); n != 0 {
		t.Errorf("%d receipts", n)
	}
}
