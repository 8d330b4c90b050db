package postadjudication

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// What is missing in the order of events is told by its numbers. Where one tenant is
// audited, that they are shared; of a tenant that is not there nothing is missing.
func TestAGapInTheOrderOfEventsIsReportedByItsNumbers(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop)
	ctx := context.Background()
	for n := 1; n <= 3; n++ {
		r.mustSubmit(release(n))
		if err := r.DrainEvents(ctx); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Tamper(t, r.db, `DELETE FROM recourse.event_log WHERE last = 2`)
	reports := func(want bool, word string, tenants ...string) {
		t.Helper()
		a, err := r.Audit(ctx, tenants...)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, b := range a.Breaks {
			found = found || strings.Contains(b.What, word)
		}
		if found != want || a.OK() == want {
			t.Errorf("%q of %v: %t, want %t: %+v", word, tenants, found, want, a.Breaks)
		}
	}
	reports(true, "number 2 is missing in the order of events; numbers are shared by all tenants", "acme")
	reports(true, "receipt 1 (submitted) has no place in the order of events")
	reports(false, "missing", "nobody")
}

// A tenant of whom nothing is left but the places of its receipts is audited with all tenants.
func TestATenantThatWasDeletedIsDetectedByItsPositions(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop)
	ctx := context.Background()
	r.mustSubmit(release(1))
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	var gone []string
	for _, table := range []string{"receipts", "runs", "operations", "cases", "escrows"} {
		gone = append(gone, "DELETE FROM recourse."+table)
	}
	testkit.Tamper(t, r.db, gone...)
	a, err := r.Audit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if said := a.Verdict(InvariantOrder); !strings.Contains(said, "and there is none") {
		t.Errorf("%q: %+v", said, a.Breaks)
	}
}

func TestNumbersThatAreMissingOrGivenTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to int64
		words    string
	}{
		{1213, 1220, "numbers 1213 to 1220 are missing in the order of events"}, {7, 7, "number 7 is missing in the order of events"},
		{8, 6, "number 7 is given twice in the order of events"}, {10, 6, "numbers 7 to 9 are given twice in the order of events"},
	} {
		if words := gapText(c.from, c.to); words != c.words {
			t.Errorf("from %d to %d: %q, want %q", c.from, c.to, words, c.words)
		}
	}
}
