package casework

import (
	"testing"
	"time"
)

func TestPausesBetweenLookupsDouble(t *testing.T) {
	t.Parallel()
	r := LookupRule{}.withDefaults()
	for asked, want := range map[int]time.Duration{1: time.Minute, 2: 2 * time.Minute, 3: 4 * time.Minute, 9: 256 * time.Minute, 10: 6 * time.Hour, 1000: 6 * time.Hour} {
		if got := r.pause(asked); got != want {
			t.Errorf("after lookup %d: %s, want %s", asked, got, want)
		}
	}
}
