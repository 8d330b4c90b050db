package jobs_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// holdFetchKeys holds keys of a tenant until release is called, as fetches of another process do that take
// long to be answered.
func (f *fixture) holdFetchKeys(tenant string, keys ...lease.FetchKey) (release func()) {
	f.t.Helper()
	tx, err := f.DB.BeginTx(context.Background(), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = tx.Rollback() })
	for _, key := range keys {
		if _, err := tx.Exec(`SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || encode($2, 'hex'), 12))`, tenant, key[:]); err != nil {
			f.t.Fatal(err)
		}
	}
	return func() {
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			f.t.Error(err)
		}
	}
}

// waitingFetches returns how many fetches wait in the database for a key.
func (f *fixture) waitingFetches() (n int) {
	f.t.Helper()
	if err := f.DB.QueryRow(`SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted`).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// One tenant's fetches with a key wait in the database, two at once. Others fetch meanwhile, with a key or
// without; the tenant itself fetches without.
func TestFetchesWithAKeyKeepNobodyElseFromFetching(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	held := []lease.FetchKey{{1}, {2}, {3}, {4}, {5}}
	release := f.holdFetchKeys("acme", held...)
	var fetches sync.WaitGroup
	for _, key := range held {
		fetches.Go(func() {
			if _, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w1", Key: key}); err != nil {
				t.Error(err)
			}
		})
	}
	poll.Until(t, "two fetches wait for their keys", func() bool { return f.waitingFetches() == 2 })
	other := f.As("umbrella", "service:shop").Jobs
	for name, fetch := range map[string]func() ([]jobs.Fetched, error){
		"of another tenant": func() ([]jobs.Fetched, error) {
			return other.Fetch(context.Background(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w2"})
		},
		"of another tenant with a key": func() ([]jobs.Fetched, error) {
			return other.Fetch(context.Background(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w2", Key: held[0]})
		},
		"of the tenant without a key": func() ([]jobs.Fetched, error) {
			return f.Fetch(context.Background(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w2"})
		},
	} {
		if _, err := fetch(); err != nil {
			t.Errorf("a fetch %s: %v", name, err)
		}
		if n := f.waitingFetches(); n != 2 {
			t.Errorf("after a fetch %s %d fetches wait in the database, want 2", name, n)
		}
	}
	release()
	fetches.Wait()
}

// Of equal fetches in flight one at a time is made, and they take one place of their tenant's. All are given
// the same jobs.
func TestEqualFetchesInFlightAreGivenTheSameJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job := f.mustEnqueue()
	f.mustEnqueue()
	key := lease.FetchKey{1}
	release := f.holdFetchKeys("acme", key)
	const equal = 12
	ids := make([][]string, equal)
	var begun atomic.Int64
	var fetches sync.WaitGroup
	for n := range equal {
		fetches.Go(func() {
			begun.Add(1)
			got, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{mail}, Count: 1, Worker: "w1", Key: key})
			if err != nil {
				t.Error(err)
			}
			for _, j := range got {
				ids[n] = append(ids[n], j.ID)
			}
		})
	}
	poll.Until(t, "one of the fetches waits for the key", func() bool { return begun.Load() == equal && f.waitingFetches() == 1 })
	got, err := f.Fetch(context.Background(), jobs.Fetch{Queues: []string{"none"}, Count: 1, Worker: "w1", Key: lease.FetchKey{2}})
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if n := f.waitingFetches(); n != 1 {
		t.Errorf("%d of the equal fetches wait in the database, want 1", n)
	}
	release()
	fetches.Wait()
	for _, got := range ids {
		if !slices.Equal(got, []string{job.ID}) {
			t.Errorf("%v, want the job %s, which is due first", got, job.ID)
		}
	}
}
