package prove

import "testing"

// A mutant that is on changes what it stands for, and no other does.
func TestWhatAMutantChanges(t *testing.T) {
	t.Parallel()
	mutantOn = 7
	type sums struct {
		Paid  int64
		Other string
	}
	for number, on := range map[int]bool{7: true, 8: false} {
		s := sums{Paid: 1}
		*mutantSet(number, &s.Paid) = 2
		if set := s.Paid == 2; set == on || mutantIs(number) != on {
			t.Errorf("%d: set %t", number, set)
		}
		if got := mutantDrop(number, "Paid", &sums{Paid: 3, Other: "a"}); (got.Paid == 3) == on || got.Other != "a" {
			t.Errorf("%d: %+v", number, got)
		}
		if got := mutantCase(number, "a", "a"); (got == "a") == on {
			t.Errorf("%d: %q", number, got)
		}
		if got := mutantText(number, "OR true"); (got == "OR true") != on || !on && got != "" {
			t.Errorf("%d: %q", number, got)
		}
		for _, value := range []string{"", "b"} {
			if got := mutantCase(number, value, "a"); got != value {
				t.Errorf("%d: %q, not %q", number, got, value)
			}
		}
		if a, b, c := mutantCase(number, int8(1), 1), mutantCase(number, byte(1), 1), mutantCase(number, true, true); (a == 1) == on || (b == 1) == on || c == on {
			t.Errorf("%d: %d, %d, %t", number, a, b, c)
		}
	}
}
