package journal_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

func micros() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func openBreaker(b circuit.Breaker) (circuit.Breaker, bool) {
	return b.Open(false, "test", circuit.CauseFailing, "why", micros())
}

func closeBreaker(b circuit.Breaker) (circuit.Breaker, bool) {
	return b.Close("test", circuit.CauseRecovered, "why", micros())
}

func mustUpdateBreaker(t *testing.T, j *journal.Journal, target circuit.Scope, decide func(circuit.Breaker) (circuit.Breaker, bool)) circuit.Breaker {
	t.Helper()
	b, moved, err := j.Breakers.UpdateBreaker(context.Background(), target, decide)
	if err != nil || !moved {
		t.Fatalf("%+v, %v, %v", b, moved, err)
	}
	return b
}

// The journal refuses claims by a process that does not know of the breaker. Probes can be
// claimed.
func TestClaimsAreGuardedByTheBreaker(t *testing.T) {
	t.Parallel()
	for name, tenant := range map[string]string{"over all tenants": "", "of one": "acme"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, j := context.Background(), journaltest.Open(t, testkit.Migrated(t))
			session := background.Session{ID: uuid.New(), Worker: "w"}
			if err := j.Sessions.Register(ctx, session); err != nil {
				t.Fatal(err)
			}
			claim := func(s journal.Snapshot) error {
				m := journaltest.Transition(receipts.AttemptStarted, s.Run)
				m.Session = session.ID
				_, err := j.CommitTransition(ctx, s.Run.ID, m.ID, journaltest.Decide(m))
				return err
			}
			runs := []journal.Snapshot{journaltest.Submit(t, j), journaltest.Submit(t, j), journaltest.Submit(t, j)}
			target := circuit.Scope{Tenant: tenant, Family: "plain", Name: "plain"}
			mustUpdateBreaker(t, j, circuit.Scope{Tenant: "other", Family: "plain", Name: "plain"}, openBreaker)
			b := mustUpdateBreaker(t, j, target, openBreaker)
			if err := claim(runs[0]); !errors.Is(err, background.ErrBreakerOpen) {
				t.Errorf("claim while open: %v", err)
			}
			b.Probes, b.Version = []background.RunID{runs[0].Run.ID, runs[1].Run.ID}, b.Version+1
			b.FewSince = time.Date(2026, 11, 24, 10, 0, 0, 123000, time.UTC)
			if ok, err := j.Breakers.RecordProbes(ctx, b); !ok || err != nil {
				t.Fatalf("%v, %v", ok, err)
			}
			if ok, err := j.Breakers.RecordProbes(ctx, b); ok || err != nil {
				t.Errorf("second leader with the same version: %v, %v", ok, err)
			}
			stored, err := j.Breakers.TargetBreakers(ctx, target)
			if err != nil || len(stored) != 1 || !stored[0].FewSince.Equal(b.FewSince) || len(stored[0].Probes) != 2 {
				t.Errorf("stored: %+v, %v", stored, err)
			}
			if err := errors.Join(claim(runs[0]), claim(runs[1])); err != nil {
				t.Errorf("claim of a probe: %v", err)
			}
			if err := claim(runs[2]); !errors.Is(err, background.ErrBreakerOpen) {
				t.Errorf("claim of another run: %v", err)
			}
			if due, err := j.Notifications.DueRuns(ctx, background.Cursor{}, time.Now(), 10); err != nil || len(due) != 0 {
				t.Errorf("due although paused: %v, %v", due, err)
			}
			mustUpdateBreaker(t, j, target, closeBreaker)
			if err := claim(runs[2]); err != nil {
				t.Errorf("claim after closing: %v", err)
			}
		})
	}
}

// The first caller opens the breaker, the others find it open, and there is one receipt.
func TestABreakerOpenedByManyOpensOnce(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	journals := []*journal.Journal{journaltest.Open(t, url), journaltest.Open(t, url)}
	target := circuit.Scope{Family: "plain", Name: "plain"}
	var all sync.WaitGroup
	moved := make([]bool, 8)
	for i := range moved {
		all.Go(func() {
			b, m, err := journals[i%2].Breakers.UpdateBreaker(ctx, target, openBreaker)
			if moved[i] = m; err != nil || b.State != circuit.Open {
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
	if trail := onlyTrail(t, journals[0], journal.AllTenants); n != 1 || len(trail) != 1 || trail[0].Subtype != receipts.BreakerOpened {
		t.Errorf("opened %d times, %v", n, trail)
	}
	if stale, err := journals[1].Breakers.RecordProbes(ctx, circuit.Breaker{Scope: target, State: circuit.Open, Version: 7}); stale || err != nil {
		t.Errorf("probes with a wrong version: %v, %v", stale, err)
	}
	if stale, err := journals[1].Breakers.RecordProbes(ctx, circuit.Breaker{Scope: target, State: circuit.HalfOpen, Version: 2}); stale || err != nil {
		t.Errorf("probes in a wrong state: %v, %v", stale, err)
	}
}

// onlyTrail returns the trail of a tenant's only case without runs.
func onlyTrail(t *testing.T, j *journal.Journal, tenant string) []receipts.Receipt {
	t.Helper()
	var id string
	var head, cases int64
	if err := j.Reads().QueryRow(`SELECT min(id::text), max(last_seq), count(*) FROM recourse.cases WHERE tenant = $1 AND kind = 'operations'`, tenant).Scan(&id, &head, &cases); err != nil || cases != 1 {
		t.Fatalf("%d cases, %v", cases, err)
	}
	caseID, err := receipts.ParseCaseID(id)
	if err != nil {
		t.Fatal(err)
	}
	trail, err := j.Receipts.Trail(context.Background(), tenant, caseID, journal.TrailCursor{Case: caseID}, 1000)
	if err != nil || int(head) != len(trail) {
		t.Fatalf("%s, %d, %v, %v", id, head, trail, err)
	}
	return trail
}

// A tenant's trail has one receipt when a breaker over all tenants pauses its runs and one
// when that ends, however many processes record it and how often.
func TestATenantsTrailRecordsEachOpeningOnce(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	journals := []*journal.Journal{journaltest.Open(t, url), journaltest.Open(t, url)}
	target := circuit.Scope{Family: "plain", Name: "plain"}
	record := func() {
		t.Helper()
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				for {
					err := journals[i%2].Breakers.RecordPaused(ctx, "acme", target, micros())
					if errors.Is(err, journal.ErrBusy) {
						continue
					}
					if err == nil {
						_, err = journals[i%2].Breakers.RecordClosed(ctx, micros(), 10)
					}
					if err == nil {
						return
					}
					if !errors.Is(err, journal.ErrBusy) {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	wants := func(want ...receipts.Subtype) {
		t.Helper()
		trail := onlyTrail(t, journals[0], "acme")
		if len(trail) != len(want) {
			t.Fatalf("%d receipts, want %v", len(trail), want)
		}
		for i, r := range trail {
			if r.Subtype != want[i] || r.Tenant != "acme" {
				t.Errorf("%d: %+v", i, r)
			}
		}
	}
	mustUpdateBreaker(t, journals[0], target, openBreaker)
	record()
	wants(receipts.BreakerOpened)
	mustUpdateBreaker(t, journals[0], target, closeBreaker)
	record()
	wants(receipts.BreakerOpened, receipts.BreakerReleased)
	mustUpdateBreaker(t, journals[0], target, openBreaker)
	record()
	mustUpdateBreaker(t, journals[0], target, closeBreaker)
	mustUpdateBreaker(t, journals[0], target, openBreaker) // the end of the second opening is not recorded yet
	record()
	wants(receipts.BreakerOpened, receipts.BreakerReleased, receipts.BreakerOpened, receipts.BreakerReleased, receipts.BreakerOpened)
}

// PausedRuns returns what the query selects.
func TestPausedRunsAreListedByQuery(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	ctx, j, db := context.Background(), journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	var ids []background.RunID
	for range 5 {
		ids = append(ids, journaltest.Submit(t, j).Run.ID)
	}
	base := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	for i, id := range ids {
		if _, err := db.Exec(`UPDATE recourse.runs SET due_at = $2, state = $3 WHERE id = $1`, id.String(), base.Add(time.Duration(i)*time.Minute), []string{"pending", "scheduled", "pending", "scheduled", "pending"}[i]); err != nil {
			t.Fatal(err)
		}
	}
	others := background.PausedQuery{NeverClaimed: true, NewestFirst: true, Called: []string{"other"}, Others: true, Limit: 2}
	others.Scope, others.Due = circuit.Scope{Family: "plain", Name: "plain"}, time.Now()
	if found, err := j.Breakers.PausedRuns(ctx, others); err != nil || len(found) > 0 {
		t.Errorf("other targets, though no process calls them: %v, %v", found, err)
	}
	if _, err := db.Exec(`INSERT INTO recourse.sessions (id, worker, started_at, targets) VALUES (gen_random_uuid(), 'w', now(), '{plain}')`); err != nil {
		t.Fatal(err)
	}
	target := circuit.Scope{Family: "plain", Name: "plain"}
	for name, tc := range map[string]struct {
		q    background.PausedQuery
		want []int
	}{
		"new, newest":        {background.PausedQuery{NeverClaimed: true, NewestFirst: true, Limit: 2}, []int{4, 2}},
		"new, anywhere":      {background.PausedQuery{NeverClaimed: true, StartFraction: 0.3, Limit: 1}, []int{2}},
		"new, the oldest":    {background.PausedQuery{NeverClaimed: true, Limit: 9}, []int{0, 2, 4}},
		"failed before":      {background.PausedQuery{Limit: 9}, []int{1, 3}},
		"failed, in turn":    {background.PausedQuery{After: background.Cursor{DueAt: base.Add(time.Minute), ID: ids[1]}, Limit: 9}, []int{3}},
		"of a tenant":        {background.PausedQuery{Scope: circuit.Scope{Tenant: "acme"}, Limit: 9}, []int{1, 3}},
		"of another tenant":  {background.PausedQuery{Scope: circuit.Scope{Tenant: "other"}, Limit: 9}, nil},
		"new, due long ago":  {background.PausedQuery{NeverClaimed: true, NewestFirst: true, Due: base.Add(time.Minute), Limit: 9}, []int{0}},
		"of targets called":  {background.PausedQuery{Called: []string{"plain", "other"}, Limit: 9}, []int{1, 3}},
		"called elsewhere":   {background.PausedQuery{Called: []string{"other"}, Limit: 9}, nil},
		"of others":          {others, []int{4, 2}},
		"of no others":       {background.PausedQuery{NeverClaimed: true, Called: []string{"plain"}, Others: true, Limit: 9}, nil},
		"none at that place": {background.PausedQuery{NeverClaimed: true, StartFraction: 0.9, Due: base.Add(-time.Minute), Limit: 9}, nil},
	} {
		tc.q.Family, tc.q.Name = target.Family, target.Name
		if tc.q.Due.IsZero() {
			tc.q.Due = time.Now()
		}
		found, err := j.Breakers.PausedRuns(ctx, tc.q)
		if err != nil || len(found) != len(tc.want) {
			t.Errorf("%s: %v, %v", name, found, err)
			continue
		}
		for i, r := range found {
			if r.ID != ids[tc.want[i]] {
				t.Errorf("%s: %d is %v", name, i, r)
			}
		}
	}
	if all, named, err := j.Breakers.CountPausedRuns(ctx, target, nil, 3); all != 3 || named != 3 || err != nil {
		t.Errorf("%d, %d, %v", all, named, err)
	}
	for called, want := range map[string]int{"plain": 5, "other": 0} {
		if all, named, err := j.Breakers.CountPausedRuns(ctx, target, []string{called}, 9); all != 5 || named != want || err != nil {
			t.Errorf("called %s: %d, %d, %v", called, all, named, err)
		}
	}
	mustUpdateBreaker(t, j, circuit.Scope{Tenant: "acme", Family: target.Family, Name: target.Name}, openBreaker)
	if n, _, err := j.Breakers.CountPausedRuns(ctx, target, nil, 9); n != 0 || err != nil {
		t.Errorf("paused by the tenant's own breaker: %d, %v", n, err)
	}
}
