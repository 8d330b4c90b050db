package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// Pages over the limit are named, the slowest first; a page at the limit is not.
func TestPagesThatTakeTooLongAreNamed(t *testing.T) {
	t.Parallel()
	r := result{Workload: lettersWorkload, Tasks: 1_000_000, Metrics: metrics{
		"family|highest_amount|first|p95": 60, "family|highest_amount|first|p50": 20, "held|newest|deep|p95": 70.04, "held|oldest|deep|p95": lettersLimit,
	}}
	slow, all := slowPages(r)
	want := []slowPage{{"held", "newest", "deep", 0, 70.04}, {"family", "highest_amount", "first", 20, 60}}
	if filters := len(filterCases(time.Time{}, "")); !slices.Equal(slow, want) || all != filters*len(deadletter.Sorts)*2 {
		t.Errorf("%v of %d pages, want %v", slow, all, want)
	}
	var out bytes.Buffer
	if err := writeLetters(&out, []result{{Workload: flushWorkload}, r}); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"2 of ", "over 50 ms p95", "70.0", "letters, 1000000"} {
		if !strings.Contains(strings.ToLower(out.String()), says) {
			t.Errorf("%q is not in\n%s", says, out.String())
		}
	}
}
