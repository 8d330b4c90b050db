package postadjudication

import (
	"context"
	"errors"
	"testing"
)

// A service without a Redis looks and hands over; bells are left to the sweeper of a
// process that has one.
func TestAServiceWithoutARedisLooksAndHandsOver(t *testing.T) {
	t.Parallel()
	other := newRig(t)
	r := joinRig(t, other.url, nil, other.escrow)
	ctx := context.Background()
	made := r.mustSubmit(release(1))
	if made.Reply != Created {
		t.Fatalf("%+v", made)
	}
	if err := made.Notify(ctx); !errors.Is(err, ErrNoRedis) {
		t.Errorf("a bell: %v", err)
	}
	if _, err := r.OpenBreaker(ctx, "acme", DefaultTarget, "ada", "looking"); err != nil {
		t.Errorf("a brake: %v", err)
	}
	if _, err := r.ReleaseBreaker(ctx, "acme", DefaultTarget, "ada", "looked"); err != nil {
		t.Errorf("a brake: %v", err)
	}
	stopped := r.mustSubmit(release(2))
	if _, err := r.Cancel(ctx, "acme", stopped.Run, "ada", "not this one"); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if err := r.Run(ctx); !errors.Is(err, ErrNoRedis) {
		t.Errorf("run: %v", err)
	}
	if err := r.Healthy(ctx); !errors.Is(err, ErrNoRedis) {
		t.Errorf("healthy: %v", err)
	}
	other.startWorkers()
	other.untilNoneLive()
	if c := r.caseOf(release(1)); c.Progression != "settled" {
		t.Errorf("%+v", c)
	}
	r.mustAudit()
}
