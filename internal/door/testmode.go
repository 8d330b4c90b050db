package door

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
)

// maxAdvance bounds how far the clock of a process goes in all.
const maxAdvance = 10 * 365 * 24 * time.Hour

// TestMode lets conformance tests begin anew and let time pass. All doors of a process share it. A nil
// TestMode is none. It is safe for concurrent use.
type TestMode struct {
	mu       sync.Mutex
	resets   int
	advanced time.Duration
}

// Now returns the time of a process in test mode.
func (t *TestMode) Now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Add(t.advanced)
}

// Tenant returns the tenant whose data a caller sees at every door: its own, or an empty one for each Reset. A key that was
// made since the last one is of that already.
func (t *TestMode) Tenant(tenant string) string {
	if t == nil {
		return tenant
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	suffix := fmt.Sprintf(".%d", t.resets)
	if t.resets == 0 || tenant == postadjudication.AllTenants || strings.HasSuffix(tenant, suffix) {
		return tenant
	}
	return fmt.Sprintf("%.100s", tenant) + suffix
}

// Reset gives every caller a tenant that has nothing.
func (t *TestMode) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resets++
}

// Advance lets time pass. It returns false if it would be too much.
func (t *TestMode) Advance(by time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if by > maxAdvance-t.advanced {
		return false
	}
	t.advanced += by
	return true
}
