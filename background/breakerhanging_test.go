package background

import (
	"testing"
	"time"
)

func TestCallsThatHangOpenTheBreakerWhenNobodyIsAnswered(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	for _, tc := range []struct {
		name  string
		state hanging
		opens bool
	}{
		{"as many as may", hanging{calls: 16}, false},
		{"more than may, and nobody was ever answered", hanging{calls: 17}, true},
		{"more than may, and nobody was answered since the last of them began", hanging{17, began.Add(-time.Nanosecond)}, true},
		{"more than may, and somebody was answered meanwhile", hanging{17, began}, false},
		{"as many as may in any case", hanging{256, began.Add(time.Second)}, false},
		{"more than may in any case", hanging{257, began.Add(time.Second)}, true},
	} {
		if got := tc.state.opens(16, began); got != tc.opens {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
