package plans_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/receipts"
)

// to returns a decision that changes the state of a plan from one to another, and nothing in any
// other state.
func to(from, next plans.State) func(plans.Plan, bool) (plans.Plan, receipts.Draft, error) {
	return func(b plans.Plan, pending bool) (plans.Plan, receipts.Draft, error) {
		if b.State != from {
			return b, receipts.Draft{}, journal.ErrNoChange
		}
		b.State, b.ChangedBy, b.ChangedAt = next, "user:bob", now()
		switch next {
		case plans.Running:
			b.StartedBy, b.StartedAt = "user:bob", now()
		case plans.Cancelled:
			b.EndedAt, b.OutcomesKnown = now(), !pending
		case plans.Done:
			b.EndedAt = now()
		}
		return b, receipts.Draft{Actor: "user:bob", At: now(), Payload: receipts.Payload{Bulk: b.ID.String(), Changes: string(from) + " to " + string(next)}}, nil
	}
}

// Of many who change a plan at once one does, with one receipt; the others see what it did. A
// decision that fails leaves neither.
func TestAPlanChangesOnceWithItsReceipt(t *testing.T) {
	t.Parallel()
	p, _, _ := start(t, 2)
	made := p.create(t, all())
	refused := errors.New("refused")
	if _, err := p.Update(t.Context(), "acme", made.ID, func(b plans.Plan, _ bool) (plans.Plan, receipts.Draft, error) { return b, receipts.Draft{}, refused }); !errors.Is(err, refused) {
		t.Errorf("%v instead of the decision's error", err)
	}
	if _, err := p.Update(t.Context(), "globex", made.ID, to(plans.Planned, plans.Running)); !errors.Is(err, background.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	var wins atomic.Int64
	var everyone sync.WaitGroup
	for range 6 {
		everyone.Go(func() {
			for {
				decided := to(plans.Planned, plans.Running)
				b, err := p.Update(t.Context(), "acme", made.ID, func(b plans.Plan, pending bool) (plans.Plan, receipts.Draft, error) {
					if !pending || b.HasSettlements {
						t.Errorf("pending is %t, %+v", pending, b)
					}
					next, draft, err := decided(b, pending)
					if err == nil {
						wins.Add(1)
					}
					return next, draft, err
				})
				if errors.Is(err, journal.ErrBusy) {
					continue
				}
				if err != nil || b.State != plans.Running {
					t.Errorf("%+v, %v", b, err)
				}
				return
			}
		})
	}
	everyone.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d started the plan", wins.Load())
	}
	checkChanges(t, p, "none to planned", "planned to running")
}

// A process works on plans that run, and on cancelled ones until all outcomes are known.
func TestUnfinishedPlansAreThoseToWorkOn(t *testing.T) {
	t.Parallel()
	p, _, _ := start(t, 2)
	made := p.create(t, all())
	check := func(want ...uuid.UUID) {
		t.Helper()
		found, err := p.Unfinished(t.Context())
		ids := []uuid.UUID(nil)
		for _, b := range found {
			ids = append(ids, b.ID)
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("%v instead of %v, %v", ids, want, err)
		}
	}
	change := func(from, next plans.State) {
		t.Helper()
		if b, err := p.Update(t.Context(), "acme", made.ID, to(from, next)); err != nil || b.State != next {
			t.Fatalf("%+v, %v", b, err)
		}
	}
	check()
	change(plans.Planned, plans.Running)
	check(made.ID)
	change(plans.Running, plans.Paused)
	check()
	change(plans.Paused, plans.Running)
	change(plans.Running, plans.Cancelled)
	check(made.ID)
	if err := p.MarkOutcomesKnown(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
	check()
	other := p.create(t, all())
	if list, err := p.List(t.Context(), "acme", "", uuid.Nil, 10); err != nil || len(list) != 2 || list[0].ID != other.ID || list[1].ID != made.ID {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := p.List(t.Context(), "acme", "", other.ID, 10); err != nil || len(list) != 1 || list[0].ID != made.ID {
		t.Errorf("%+v, %v", list, err)
	}
}

// One process at a time has the lock of a plan; another gets it when that releases it, or when its
// connection is lost, which the former holder learns at its next question.
func TestTheLockOfAPlanHasOneHolder(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	p := join(t, url)
	other := join(t, url)
	db := testkit.OpenAsOwner(t, url)
	a, b := plans.Plan{ID: uuid.New(), Number: 1}, plans.Plan{ID: uuid.New(), Number: 2}
	take := func(p process, b plans.Plan, want bool) *plans.Lock {
		t.Helper()
		lock, err := p.Lock(t.Context(), b)
		if err != nil || (lock != nil) != want {
			t.Fatalf("%v, %v", lock, err)
		}
		return lock
	}
	lock := take(p, a, true)
	take(other, a, false)
	of := take(other, b, true)
	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
	lock = take(other, a, true)
	if n := terminateHolders(t, db); n != 2 {
		t.Errorf("%d holders of locks", n)
	}
	for _, l := range []*plans.Lock{lock, of} {
		if state, err := l.State(t.Context()); err == nil {
			t.Errorf("the lock is lost, and the state is %q", state)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := take(p, a, true).Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A lock is taken, and a plan catches up with the receipts, although the server has ended the
// connections that the pool kept.
func TestANewConnectionIsUsedIfTheOldAreLost(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	p := join(t, url)
	db := testkit.OpenAsOwner(t, url)
	for what, use := range map[string]func() error{
		"a lock": func() error {
			lock, err := p.Lock(t.Context(), plans.Plan{ID: uuid.New(), Number: 1})
			if err != nil || lock == nil {
				return fmt.Errorf("%v, %w", lock, err)
			}
			return lock.Release(t.Context())
		},
		"catching up": func() error {
			journaltest.Submit(t, p.journal)
			return p.CatchUp(t.Context())
		},
	} {
		endPooledConnections(t, p, db)
		if err := use(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// endPooledConnections ends two connections that the pool of locks keeps.
func endPooledConnections(t *testing.T, p process, db *sql.DB) {
	t.Helper()
	var held []*plans.Lock
	for n := range int32(2) {
		lock, err := p.Lock(t.Context(), plans.Plan{ID: uuid.New(), Number: n})
		if err != nil || lock == nil {
			t.Fatalf("%v, %v", lock, err)
		}
		held = append(held, lock)
	}
	for _, lock := range held { // the pool keeps the connections
		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var ended int
	if err := db.QueryRow(`SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_advisory_unlock_all%' AND pid <> pg_backend_pid()`).Scan(&ended); err != nil || ended == 0 {
		t.Fatalf("%d connections ended, %v", ended, err)
	}
}

// terminateHolders ends the connections that hold locks of plans, waits until the server has
// released the locks, and returns how many there were.
func terminateHolders(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	const holders = `FROM pg_locks WHERE locktype = 'advisory' AND classid = 1919119988 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	if err := db.QueryRow(`SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 10000)) ` + holders).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
