package postadjudication

import (
	"context"
	"io"
	"testing"
)

// One letter that this program can't read stops nobody from seeing the others, from
// taking them away, or from seeing that it is there.
func TestOneUnreadableLetterStopsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.insertLetters(5)
	ctx := context.Background()
	if _, err := r.db.Exec(`UPDATE recourse.runs SET policy = 'of a newer program' WHERE retry_key = 'txr_3:release'`); err != nil {
		t.Fatal(err)
	}
	if n := len(r.letters(LetterFilter{})); n != 5 {
		t.Errorf("%d letters are listed", n)
	}
	if done, err := r.Export(ctx, "acme", LetterFilter{}, `held == false`, JSONL, io.Discard); err != nil || done.Letters != 5 {
		t.Errorf("%+v, %v", done, err)
	}
	if a, err := r.Analyze(ctx, "acme", AnalysisQuery{}); err != nil || a.Open != 5 || a.AtRisk["EUR"] != 15 {
		t.Errorf("%+v, %v", a, err)
	}
	purge := PurgeRequest{Actor: "user:ada", Reason: "old", Filter: LetterFilter{Family: Family}, Confirm: "4"}
	if done, err := r.Purge(ctx, "acme", purge); err != nil || done.Letters != 4 {
		t.Errorf("%+v, %v", done, err)
	}
	if left := r.letters(LetterFilter{}); len(left) != 1 || left[0].Transaction != "txr_3" {
		t.Errorf("%+v", left)
	}
}
