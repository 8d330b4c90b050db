// Package poll waits in tests for what announces no change.
//
// The pauses grow with the time waited. So many waits at once, on a busy machine, leave the
// processors to what they wait for.
//
// Used by tests only. It knows nothing of the product.
package poll

import (
	"testing"
	"time"
)

const (
	// limit bounds each wait, on a machine that is busy with other tests too.
	limit = 2 * time.Minute

	shortestPause, longestPause = 10 * time.Millisecond, 200 * time.Millisecond

	// A condition that became true is noticed after at most one and a quarter of the time that it took.
	waitedPerPause = 4
)

// Until returns once ok returns true. It fails the test with what was waited for after two
// minutes. ok may end the test by itself.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, limit, what, ok)
}

// Within is Until with another limit.
func Within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	for !ok() {
		waited := time.Since(began)
		if waited > limit {
			t.Fatalf("not true after %v: %s", limit, what)
		}
		<-time.After(min(max(waited/waitedPerPause, shortestPause), longestPause))
	}
}
