package receipts

import "testing"

func TestEverySubtypeHasItsOneSource(t *testing.T) {
	t.Parallel()
	want := map[Source]int{SourceRetry: 4, SourceExecution: 12, SourceDeadLetter: 8, SourceOperations: 13}
	got := map[Source]int{}
	seen := map[Subtype]bool{}
	for _, s := range KnownSubtypes() {
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
	for _, s := range []Subtype{"", "Submitted", "submitted ", "attempt_started"} {
		if s.Source() != "" {
			t.Errorf("%q has the source %q", s, s.Source())
		}
	}
}

func TestKnownSubtypesBelongToTheCaller(t *testing.T) {
	t.Parallel()
	KnownSubtypes()[0] = "scribbled"
	if KnownSubtypes()[0] != RetryScheduled {
		t.Error("a caller's change is seen by the next")
	}
}
