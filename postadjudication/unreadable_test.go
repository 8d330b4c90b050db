package postadjudication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// makeUnreadable gives a run a policy of a newer version.
func makeUnreadable(r *rig.Rig, run background.RunID) {
	r.T.Helper()
	if _, err := r.DB.Exec(`UPDATE recourse.runs SET policy = '{"from":"the future"}' WHERE id = $1`, run.String()); err != nil {
		r.T.Fatal(err)
	}
}

// makeReadable gives it back a policy of this version.
func makeReadable(r *rig.Rig, run background.RunID) {
	r.T.Helper()
	if _, err := r.DB.Exec(`UPDATE recourse.runs SET policy = (SELECT policy FROM recourse.runs WHERE policy NOT LIKE '%future%' LIMIT 1) WHERE id = $1`, run.String()); err != nil {
		r.T.Fatal(err)
	}
}

// A worker leaves a run that it can't read for one that can: it stays healthy, executes all
// others, and reports how many it can't read.
func TestAWorkerThatCanNotReadARunCarriesAllOthers(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	bad := r.MustNotify(r.MustSubmit(rig.Release(1)))
	makeUnreadable(r, bad.Run)
	old := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow).StartWorkers()
	old.Wait("the run was met", func() bool { return old.Health().Stats().Unreadable == 1 })
	for n := 2; n < 22; n++ {
		old.MustSubmit(rig.Release(n))
	}
	old.WaitSettled(20)
	if err := old.Engine().Healthy(); err != nil || old.Health().Stats().WriteFailures != 0 {
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
	makeReadable(r, bad.Run)
	r.MustAudit()
}

// One unreadable run among those of a lost worker blocks none of the others, not even when it
// comes first.
func TestTheRecoveryOfOthersSkipsAnUnreadableRun(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	var runs []postadjudication.Submitted
	for n := range 5 {
		s := r.MustSubmit(rig.Release(n))
		seen, err := r.Journal().Cases.Snapshot(context.Background(), s.Run)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Claim(context.Background(), seen.Run); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, s)
	}
	// All under the first one's session.
	if _, err := r.DB.Exec(`UPDATE recourse.runs SET session_id = (SELECT session_id FROM recourse.runs ORDER BY id LIMIT 1)`); err != nil {
		t.Fatal(err)
	}
	makeUnreadable(r, runs[0].Run)
	other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, func(c *postadjudication.Config) { c.LostAfter = 3 * time.Second }).StartWorkers()
	other.WaitSettled(4)
	if n := r.CountRuns(rig.Runs{State: background.Running}); n != 1 || other.Health().Stats().Unreadable != 1 || other.Engine().Healthy() != nil {
		t.Errorf("%d still running, %d can't be read, %v", n, other.Health().Stats().Unreadable, other.Engine().Healthy())
	}
	makeReadable(r, runs[0].Run)
	other.WaitSettled(5)
	r.MustAudit()
}
