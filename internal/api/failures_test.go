package api

import (
	"fmt"
	"testing"
)

func TestFailuresAreLimitedByWhoMakesThem(t *testing.T) {
	t.Parallel()
	f, err := newKeyedLimiter(0.001, 5)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if wait := f.take("a"); wait != 0 {
			t.Fatalf("waits %d", wait)
		}
	}
	for range 3 { // to be refused costs nothing more
		if wait := f.take("a"); wait < 900 || wait > 1000 {
			t.Errorf("waits %d", wait)
		}
	}
	if wait := f.take("b"); wait != 0 {
		t.Errorf("another waits %d", wait)
	}
	for i := range 2 * limiterCacheSize {
		f.take(fmt.Sprint(i))
	}
	if f.limiters.Len() > limiterCacheSize {
		t.Errorf("%d are kept in mind", f.limiters.Len())
	}
}
