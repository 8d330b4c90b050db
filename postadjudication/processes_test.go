package postadjudication_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// A process that shuts down while a run waits in its memory leaves it scheduled, and
// another process finishes it.
func TestShutdownWithARunWaitingInPlace(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.BaseDelay = 900 * time.Millisecond })
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt == 1 {
			return rig.RateLimited()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Scheduled)
	r.StopWorkers()
	st, err := r.Status(context.Background(), "acme", s.Run)
	if err != nil || st.State != background.Scheduled || st.Attempts != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow).StartWorkers()
	r.WaitNoneLive()
	if st, err = r.Status(context.Background(), "acme", s.Run); err != nil || st.State != background.Succeeded || st.Attempts != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	r.MustAudit()
}

// Two processes get every notification twice; each attempt happens once.
func TestTwoWorkersAndDuplicateDeliveriesMakeOneAttemptEach(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt < 3 {
			return rig.RateLimited()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	r.StartWorkers()
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow).StartWorkers()
	const n = 50
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			s := r.MustSubmit(rig.Release(i))
			for notification := 2; notification < 4; notification++ { // notifications that are not in the journal
				run := s.AsWritten()
				run.NotificationNumber = notification
				if err := r.Engine().Notify(context.Background(), run); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	r.WaitNoneLive()
	if calls := r.Escrow.TotalCalls(); calls != 3*n {
		t.Errorf("%d calls, %d attempts", calls, 3*n)
	}
	r.MustAudit()
}

// The journal's connections are killed again and again: every outcome is still written
// once.
func TestLostConnectionsLoseNoOutcome(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	assassin, err := r.DB.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	const kills = 60
	var killer sync.WaitGroup
	killer.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range kills {
			<-tick.C
			if _, err := assassin.ExecContext(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 2`); err != nil {
				t.Error(err)
			}
		}
	})
	const n = 200
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for {
				s, err := r.Submit(context.Background(), rig.Release(i))
				if err == nil && s.Reply.Accepted() {
					return
				}
			}
		})
	}
	all.Wait()
	killer.Wait()
	untilRetrying(r, "all settled", `SELECT count(*) = $1 FROM recourse.cases WHERE progression = 'settled'`, n)
	if err := assassin.Close(); err != nil {
		t.Error(err)
	}
	for range kills { // idle connections that were killed each fail once
		if _, err := r.Audit(context.Background()); err == nil && r.DrainEvents(context.Background()) == nil {
			break
		}
	}
	r.MustAudit()
}

// untilRetrying is until, over connections that may be killed.
func untilRetrying(r *rig.Rig, what, query string, args ...any) {
	r.T.Helper()
	r.Wait(what, func() (ok bool) {
		return r.DB.QueryRow(query, args...).Scan(&ok) == nil && ok
	})
}
