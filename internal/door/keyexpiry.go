package door

import (
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
)

// KeyExpiresHeader is the header that shows when the caller's key expires, in its last 30 days.
const KeyExpiresHeader = "Recourse-Key-Expires"

const (
	// expiryLogInterval is how often a process logs that a key in use expires soon. A key that was
	// not shown for so long, for example because it was rotated or revoked, is forgotten.
	expiryLogInterval = 24 * time.Hour
	// maxExpiringKeys bounds how many expiring keys are remembered, so that metrics stay small.
	maxExpiringKeys = 256
)

// expiringKeys remembers the keys that were shown in their last 30 days. It is safe for
// concurrent use.
type expiringKeys struct {
	mu       sync.Mutex
	byPrefix map[string]expiringKey
}

type expiringKey struct{ expiresAt, loggedAt, usedAt time.Time }

// record remembers a key. It reports whether its expiry should be logged now.
func (e *expiringKeys) record(prefix string, end, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.prune(now)
	known, is := e.byPrefix[prefix]
	if !is && len(e.byPrefix) >= maxExpiringKeys {
		return false
	}
	due := now.Sub(known.loggedAt) >= expiryLogInterval
	if due {
		known.loggedAt = now
	}
	known.expiresAt, known.usedAt = end, now
	e.byPrefix[prefix] = known
	return due
}

// prune drops expired keys, and keys that were not shown for expiryLogInterval.
func (e *expiringKeys) prune(now time.Time) {
	for prefix, k := range e.byPrefix {
		if !now.Before(k.expiresAt) || now.Sub(k.usedAt) >= expiryLogInterval {
			delete(e.byPrefix, prefix)
		}
	}
}

// ExpiringKeys returns the expiry, by prefix, of each key that this process was shown in the
// key's last 30 days.
func (d *Door) ExpiringKeys() map[string]time.Time {
	d.expiringKeys.mu.Lock()
	defer d.expiringKeys.mu.Unlock()
	d.expiringKeys.prune(time.Now())
	out := make(map[string]time.Time, len(d.expiringKeys.byPrefix))
	for prefix, k := range d.expiringKeys.byPrefix {
		out[prefix] = k.expiresAt
	}
	return out
}

// announceExpiry sets KeyExpiresHeader for a key that expires soon, and logs it once a day.
func (d *Door) announceExpiry(w http.ResponseWriter, c Caller) {
	now := time.Now()
	if !access.ExpiresSoon(c.ExpiresAt, now) {
		return
	}
	w.Header().Set(KeyExpiresHeader, c.ExpiresAt.UTC().Format(time.RFC3339))
	if d.expiringKeys.record(c.Key, *c.ExpiresAt, now) {
		d.log.Warn("an access key in use expires soon: make its successor with recourse keys rotate",
			zap.String("key", c.Key), zap.String("tenant", c.Tenant), zap.String("principal", c.Principal), zap.Time("expires_at", *c.ExpiresAt))
	}
}
