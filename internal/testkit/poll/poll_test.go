package poll_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// failed is a test that notes how it failed.
type failed struct {
	testing.TB
	calls int
}

func (f *failed) Helper()               {}
func (f *failed) Fatalf(string, ...any) { f.calls++; panic(f) }

func TestUntilReturnsSoonAfterTheConditionHolds(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			began, asked := time.Now(), 0
			poll.Until(t, "the time has come", func() bool { asked++; return time.Since(began) >= after })
			if late := time.Since(began) - after; late > max(10*time.Millisecond, min(after/4, 200*time.Millisecond)) {
				t.Errorf("after %v it returned %v late", after, late)
			}
			if most := 30 + int(after/(200*time.Millisecond)); asked > most {
				t.Errorf("after %v it had asked %d times, want at most %d", after, asked, most)
			}
		})
	}
}

func TestUntilFailsTheTestInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failed{TB: t}
		began := time.Now()
		defer func() {
			if recover() != f || f.calls != 1 {
				t.Errorf("%d failures", f.calls)
			}
			if took := time.Since(began); took < 2*time.Minute || took > 121*time.Second {
				t.Errorf("after %v", took)
			}
		}()
		poll.Until(f, "never", func() bool { return false })
	})
}
