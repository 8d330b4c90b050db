package postadjudication_test

import (
	"context"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// A submission by somebody without a key is marked as all their receipts are, whether it opens its
// case or not. What a handler is opened with is not theirs.
func TestASubmissionIsMarkedSelfDeclared(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := postadjudication.WithCaller(context.Background(), postadjudication.Caller{SelfDeclared: true})
	own, err := r.Submit(ctx, rig.Release(1))
	if err != nil || own.Reply != postadjudication.Created {
		t.Fatalf("%v, %v", own, err)
	}
	tx, err := r.DB.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	inTx, err := r.SubmitTx(ctx, tx, rig.Release(2))
	if err != nil || inTx.Reply != postadjudication.Created {
		t.Fatalf("%v, %v", inTx, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	proven := r.MustSubmit(rig.Release(3))
	for _, s := range []postadjudication.Submitted{own, inTx, proven} {
		payloads := r.Payloads(s, receipts.Submitted)
		if len(payloads) != 1 || payloads[0].SelfDeclared != (s.Run != proven.Run) {
			t.Errorf("the receipts of run %s: %+v", s.Run, payloads)
		}
	}
	r.MustAudit()
}
