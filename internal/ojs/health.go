package ojs

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

const (
	// healthWait bounds the check of the store.
	healthWait = 2 * time.Second
	// healthAge is how long a check counts: anybody may ask, and the store is read once a second at most.
	healthAge = time.Second
)

// storeCheck is the last check of the store. It is safe for concurrent use.
type storeCheck struct {
	mu      sync.Mutex
	at      time.Time
	latency time.Duration
	err     error
}

// run returns how long the last check took, and its error. It checks anew if that is too old.
func (c *storeCheck) run(check func(context.Context) error) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < healthAge {
		return c.latency, c.err
	}
	// The caller may leave, but others wait for the check.
	ctx, cancel := context.WithTimeout(context.Background(), healthWait)
	defer cancel()
	began := time.Now()
	c.err = check(ctx)
	c.at, c.latency = time.Now(), time.Since(began)
	return c.latency, c.err
}

// health answers GET /health. It needs no key, and does not tell why the store fails.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	latency, err := s.store.run(func(ctx context.Context) error {
		_, err := s.service.Health().DatabaseRole(ctx)
		return err
	})
	out := spec.Health{
		Status: "ok", Version: spec.Version, UptimeSeconds: int64(time.Since(s.began).Seconds()),
		Backend: spec.BackendHealth{Type: backend, Status: "connected", LatencyMS: latency.Milliseconds()},
	}
	status := http.StatusOK
	if err != nil {
		status, out.Status, out.Backend.Status, out.Backend.Error = http.StatusServiceUnavailable, "degraded", "disconnected", "the store is not reachable"
	}
	s.write(w, status, marshal(out))
}
