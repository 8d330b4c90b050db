package receipts_test

import (
	"testing"

	"github.com/recourse-dev/recourse/receipts"
)

func TestEverySubtypeHasItsOneSource(t *testing.T) {
	t.Parallel()
	want := map[receipts.Source]int{receipts.SourceRetry: 4, receipts.SourceExecution: 14, receipts.SourceDeadLetter: 8, receipts.SourceOperations: 13}
	got := map[receipts.Source]int{}
	seen := map[receipts.Subtype]bool{}
	for _, s := range receipts.KnownSubtypes() {
		if seen[s] {
			t.Errorf("%s is listed twice", s)
		}
		seen[s] = true
		got[s.Source()]++
	}
	for src, n := range want {
		if got[src] != n {
			t.Errorf("%s has %d subtypes, want %d", src, got[src], n)
		}
	}
	if got[""] != 0 {
		t.Errorf("%d known subtypes have no source", got[""])
	}
}

func TestUnknownSubtypeHasNoSource(t *testing.T) {
	t.Parallel()
	for _, s := range []receipts.Subtype{"", "Submitted", "submitted ", "attempt_started"} {
		if s.Source() != "" {
			t.Errorf("%q has the source %q", s, s.Source())
		}
	}
}

func TestKnownSubtypesBelongToTheCaller(t *testing.T) {
	t.Parallel()
	receipts.KnownSubtypes()[0] = "scribbled"
	if receipts.KnownSubtypes()[0] != receipts.RetryScheduled {
		t.Error("a caller's change is seen by the next")
	}
}
