package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/receipts"
)

func pull(b background.Brake) (background.Brake, bool) {
	return b.Pull(false, "test", background.CauseFailing, "why", time.Now().UTC().Truncate(time.Microsecond))
}

func ease(b background.Brake) (background.Brake, bool) {
	return b.Release("test", background.CauseAnswered, "why", time.Now().UTC().Truncate(time.Microsecond))
}

func mustMove(t *testing.T, j *postgres.Journal, of background.Target, decide func(background.Brake) (background.Brake, bool)) background.Brake {
	t.Helper()
	b, moved, err := j.MoveBrake(context.Background(), of, decide)
	if err != nil || !moved {
		t.Fatalf("%+v, %v, %v", b, moved, err)
	}
	return b
}

// A process that does not know of the brake is refused by the journal, and the probe
// and what was let go are not.
func TestClaimsAreGuardedByTheBrake(t *testing.T) {
	t.Parallel()
	ctx, j := context.Background(), open(t, testkit.Migrated(t))
	session := background.Session{ID: uuid.New(), Worker: "w", StartedAt: time.Now()}
	if err := j.Enlist(ctx, session); err != nil {
		t.Fatal(err)
	}
	claim := func(s postgres.Snapshot) error {
		m := move(receipts.AttemptStarted, s.Run)
		m.Session = session.ID
		_, err := j.Apply(ctx, s.Run.ID, m.ID, decide(m))
		return err
	}
	runs := []postgres.Snapshot{submit(t, j), submit(t, j), submit(t, j)}
	of := background.Target{Tenant: "acme", Family: "plain", Name: "plain"}
	b := mustMove(t, j, of, pull)
	if err := claim(runs[0]); !errors.Is(err, background.ErrBraked) {
		t.Errorf("pulled: %v", err)
	}
	b.Probe, b.Version = runs[0].Run.ID, b.Version+1
	if ok, err := j.StepBrake(ctx, b); !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	if err := claim(runs[0]); err != nil {
		t.Errorf("the probe: %v", err)
	}
	next := b
	next.Probe, next.Version = runs[1].Run.ID, b.Version+1
	if ok, err := j.StepBrake(ctx, next); ok || err != nil {
		t.Errorf("a second probe while the first runs: %v, %v", ok, err)
	}
	b = mustMove(t, j, of, ease)
	parked, err := j.Parked(ctx, of, background.Cursor{}, time.Now(), 1)
	if err != nil || len(parked) != 1 {
		t.Fatalf("%v, %v", parked, err)
	}
	b.LetGo, b.Version = background.Cursor{DueAt: parked[0].DueAt, ID: parked[0].ID}, b.Version+1
	if ok, err := j.StepBrake(ctx, b); !ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	due, err := j.Waiting(ctx, background.Cursor{}, time.Now(), 10)
	if err != nil || len(due) != 1 || due[0].ID != parked[0].ID {
		t.Errorf("not parked are %v, %v", due, err)
	}
	for _, s := range runs[1:] {
		if err := claim(s); (err == nil) != (s.Run.ID == parked[0].ID) {
			t.Errorf("let go %v: %v", s.Run.ID == parked[0].ID, err)
		}
	}
}

// Whoever notices first pulls; the others find it pulled, and there is one receipt.
func TestBrakePulledByManyIsPulledOnce(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	journals := []*postgres.Journal{open(t, url), open(t, url)}
	of := background.Target{Tenant: "acme", Family: "plain", Name: "plain"}
	var all sync.WaitGroup
	moved := make([]bool, 8)
	for i := range moved {
		all.Go(func() {
			b, m, err := journals[i%2].MoveBrake(ctx, of, pull)
			if moved[i] = m; err != nil || b.State != background.BrakePulled {
				t.Errorf("%+v, %v", b, err)
			}
		})
	}
	all.Wait()
	n := 0
	for _, m := range moved {
		if m {
			n++
		}
	}
	cases, err := journals[0].OperationsCases(ctx, "acme")
	if err != nil || len(cases) != 1 || n != 1 {
		t.Fatalf("pulled %d times, cases %v, %v", n, cases, err)
	}
	head, trail, found, err := journals[0].OperationsAtOnce(ctx, "acme", cases[0])
	if err != nil || !found || len(trail) != 1 || head.Seq != 1 || trail[0].Subtype != receipts.BrakePulled {
		t.Errorf("%v %v %v %v", head, trail, found, err)
	}
	if stale, err := journals[1].StepBrake(ctx, background.Brake{Target: of, State: background.BrakePulled, Version: 7}); stale || err != nil {
		t.Errorf("a step from another version: %v, %v", stale, err)
	}
}
