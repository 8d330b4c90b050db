package background

import (
	"testing"
	"time"

	"go.uber.org/zap"
)

// The age of a claim is the longest of all clocks: each of them can stand still or be set back.
func TestElapsedTimeIsTheLongestOfAllClocks(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		wall, mono, boot, want time.Duration
	}{
		"all agree":                   {2, 2, 2, 2},
		"wall clock set back":         {-3600, 2, 2, 2},
		"set forward":                 {3600, 2, 2, 3600},
		"suspended, wall not yet set": {1, 1, 90, 90},
		"no boot time known":          {2, 3, 0, 3},
	} {
		then := instant{wall: noon, mono: time.Second, boot: time.Second}
		later := instant{wall: noon.Add(c.wall * time.Second), mono: time.Second + c.mono*time.Second, boot: time.Second + c.boot*time.Second}
		if got := then.until(later); got != c.want*time.Second {
			t.Errorf("%s: %s, want %ds", name, got, c.want)
		}
	}
	if a, b := readClocks(), readClocks(); a.until(b) < 0 || a.until(b) > time.Minute {
		t.Errorf("the machine's own clocks: %+v, %+v", a, b)
	}
}

func TestClaimBackoffDoublesUntilAClaimIsFresh(t *testing.T) {
	t.Parallel()
	var now time.Duration
	at := func() instant { return instant{mono: now} }
	p := newClaimBackoff(zap.NewNop(), at, 15*time.Second)
	for i, step := range []struct {
		after time.Duration // since the step before
		do    func()
		left  time.Duration
	}{
		{0, func() {}, 0},
		{time.Second, p.onStaleClaim, time.Second},
		{0, p.onStaleClaim, time.Second}, // sent together
		{600 * time.Millisecond, p.onStaleClaim, 400 * time.Millisecond},
		{time.Second, func() {}, 0},
		{0, p.onStaleClaim, 2 * time.Second},
		{2 * time.Second, p.onStaleClaim, 4 * time.Second},
		{4 * time.Second, p.onStaleClaim, 8 * time.Second},
		{8 * time.Second, p.onStaleClaim, 16 * time.Second},
		{16 * time.Second, p.onStaleClaim, 30 * time.Second},
		{30 * time.Second, p.onStaleClaim, 30 * time.Second},
		{30 * time.Second, func() { p.onFreshClaim(instant{mono: now - time.Minute}) }, 0}, // sent before
		{0, p.onStaleClaim, 30 * time.Second},
		{31 * time.Second, func() { p.onFreshClaim(instant{mono: now - time.Second}) }, 0},
		{0, p.onStaleClaim, time.Second},
	} {
		now += step.after
		step.do()
		if left := p.remaining(); left != step.left {
			t.Errorf("step %d: %s left, want %s", i, left, step.left)
		}
	}
	if n := p.staleClaims.Load(); n != 11 {
		t.Errorf("%d stale claims counted", n)
	}
}

// A pause lasts at most twice LostAfter: after a stall of Postgres the runs move again within a time that the
// configuration says.
func TestClaimBackoffIsBoundedByLostAfter(t *testing.T) {
	t.Parallel()
	for lostAfter, most := range map[time.Duration]time.Duration{100 * time.Millisecond: claimBackoffMin, 3 * time.Second: 6 * time.Second, time.Hour: claimBackoffMax} {
		var now time.Duration
		p := newClaimBackoff(zap.NewNop(), func() instant { return instant{mono: now} }, lostAfter)
		for range 10 {
			p.onStaleClaim()
			if left := p.remaining(); left > most {
				t.Errorf("lost after %s: a pause of %s, want at most %s", lostAfter, left, most)
			}
			now += p.remaining()
		}
		if p.onStaleClaim(); p.remaining() != most {
			t.Errorf("lost after %s: the last pause is %s, want %s", lostAfter, p.remaining(), most)
		}
	}
}
