package postadjudication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// makeUnreadable gives a run a policy of a newer version.
func (r *rig) makeUnreadable(run background.RunID) {
	r.t.Helper()
	if _, err := r.db.Exec(`UPDATE recourse.runs SET policy = '{"from":"the future"}' WHERE id = $1`, run.String()); err != nil {
		r.t.Fatal(err)
	}
}

// makeReadable gives it back a policy of this version.
func (r *rig) makeReadable(run background.RunID) {
	r.t.Helper()
	if _, err := r.db.Exec(`UPDATE recourse.runs SET policy = (SELECT policy FROM recourse.runs WHERE policy NOT LIKE '%future%' LIMIT 1) WHERE id = $1`, run.String()); err != nil {
		r.t.Fatal(err)
	}
}

// A worker leaves a run that it can't read for one that can: it stays healthy, executes all
// others, and reports how many it can't read.
func TestAWorkerThatCanNotReadARunCarriesAllOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	bad := r.mustNotify(r.mustSubmit(release(1)))
	r.makeUnreadable(bad.Run)
	old := joinRig(t, r.url, r.redis, r.escrow).startWorkers()
	old.untilTrue("the run was met", func() bool { return old.Health().Stats().Unreadable == 1 })
	for n := 2; n < 22; n++ {
		old.mustSubmit(release(n))
	}
	old.until("all others settle", `SELECT count(*) = 20 FROM recourse.cases WHERE progression = 'settled'`)
	if err := old.manager.Healthy(); err != nil || old.Health().Stats().WriteFailures != 0 {
		t.Errorf("%v, %d failed writes", err, old.Health().Stats().WriteFailures)
	}
	ctx := context.Background()
	if _, err := old.Status(ctx, "acme", bad.Run); !errors.Is(err, refusal.ErrUnreadable) {
		t.Errorf("status: %v", err)
	}
	for _, other := range []string{"", "other"} {
		if _, err := old.Status(ctx, other, bad.Run); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("status for %q: %v", other, err)
		}
		if _, err := old.As(other, "user:ada").DeadLetters.Hold(ctx, bad.Run, holdReason); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("hold for %q: %v", other, err)
		}
		if _, err := old.As(other, "user:ada").Cases.Cancel(ctx, bad.Run, "not wanted"); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("cancel for %q: %v", other, err)
		}
	}
	if _, err := old.As("acme", "user:ada").DeadLetters.Hold(ctx, bad.Run, holdReason); !errors.Is(err, refusal.ErrUnreadable) {
		t.Errorf("hold: %v", err)
	}
	if n, err := old.Health().Unreadable(ctx); n != 1 || err != nil {
		t.Errorf("%d can't be read, %v", n, err)
	}
	r.makeReadable(bad.Run)
	r.mustAudit()
}

// One unreadable run among those of a lost worker blocks none of the others, not even when it
// comes first.
func TestTheRecoveryOfOthersSkipsAnUnreadableRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var runs []Submitted
	for n := range 5 {
		s := r.mustSubmit(release(n))
		seen, err := r.journal.Cases.Snapshot(context.Background(), s.Run)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.claimRun(seen.Run); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, s)
	}
	// All under the first one's session.
	if _, err := r.db.Exec(`UPDATE recourse.runs SET session_id = (SELECT session_id FROM recourse.runs ORDER BY id LIMIT 1)`); err != nil {
		t.Fatal(err)
	}
	r.makeUnreadable(runs[0].Run)
	other := joinRig(t, r.url, r.redis, r.escrow, func(c *Config) { c.LostAfter = 3 * time.Second }).startWorkers()
	other.until("the others settle", `SELECT count(*) = 4 FROM recourse.cases WHERE progression = 'settled'`)
	if n := r.count(`SELECT count(*) FROM recourse.runs WHERE state = 'running'`); n != 1 || other.Health().Stats().Unreadable != 1 || other.manager.Healthy() != nil {
		t.Errorf("%d still running, %d can't be read, %v", n, other.Health().Stats().Unreadable, other.manager.Healthy())
	}
	r.makeReadable(runs[0].Run)
	other.until("so does that one", `SELECT count(*) = 5 FROM recourse.cases WHERE progression = 'settled'`)
	r.mustAudit()
}
