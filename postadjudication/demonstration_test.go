package postadjudication

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// What is executed on goes by the mark of the database, whoever opens it.
func TestARealExecutorIsNotRunOnADemonstration(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Demonstration = true })
	if err := r.MayRun(); err != nil {
		t.Fatal(err)
	}
	s := r.mustSubmit(release(1))
	_, redis := testkit.Redis(t)
	real := joinRig(t, r.url, redis, newEscrow())
	if err := real.Run(context.Background()); !errors.Is(err, ErrDemonstration) || !errors.Is(real.MayRun(), ErrDemonstration) {
		t.Errorf("%v, %v", err, real.MayRun())
	}
	if st, err := real.Status(context.Background(), "acme", s.Run); err != nil || st.State != background.Pending {
		t.Errorf("%+v, %v", st, err)
	}
	r.startWorkers().untilNoneLive()
	r.mustAudit()
}
