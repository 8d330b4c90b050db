package postadjudication

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// A process that shuts down while a run waits in its memory leaves it scheduled, and
// another process finishes it.
func TestShutdownWithARunWaitingInPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Policy.BaseDelay = 900 * time.Millisecond })
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt == 1 {
			return busy429()
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("the run waits", `SELECT EXISTS (SELECT FROM recourse.runs WHERE state = 'scheduled')`)
	r.stopWork()
	st, err := r.Status(context.Background(), "acme", s.Run)
	if err != nil || st.State != background.Scheduled || st.Attempts != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	joinRig(t, r.url, r.redis, r.escrow).startWorkers()
	r.untilNoneLive()
	if st, err = r.Status(context.Background(), "acme", s.Run); err != nil || st.State != background.Succeeded || st.Attempts != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	r.mustAudit()
}

// Two processes get every notification twice; each attempt happens once.
func TestTwoWorkersAndDuplicateDeliveriesMakeOneAttemptEach(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt < 3 {
			return busy429()
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.startWorkers()
	joinRig(t, r.url, r.redis, r.escrow).startWorkers()
	const n = 50
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			s := r.mustSubmit(release(i))
			for notification := 2; notification < 4; notification++ { // notifications that are not in the journal
				run := s.run
				run.NotificationNumber = notification
				if err := r.manager.Notify(context.Background(), run); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	r.untilNoneLive()
	if calls := r.escrow.totalCalls(); calls != 3*n {
		t.Errorf("%d calls, %d attempts", calls, 3*n)
	}
	r.mustAudit()
}

// The journal's connections are killed again and again: every outcome is still written
// once.
func TestLostConnectionsLoseNoOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	assassin, err := r.db.Conn(context.Background())
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
				s, err := r.Submit(context.Background(), release(i))
				if err == nil && s.Reply.Accepted() {
					return
				}
			}
		})
	}
	all.Wait()
	killer.Wait()
	r.untilRetrying("all settled", `SELECT count(*) = $1 FROM recourse.cases WHERE progression = 'settled'`, n)
	if err := assassin.Close(); err != nil {
		t.Error(err)
	}
	for range kills { // idle connections that were killed each fail once
		if _, err := r.Audit(context.Background()); err == nil && r.DrainEvents(context.Background()) == nil {
			break
		}
	}
	r.mustAudit()
}

// untilRetrying is until, over connections that may be killed.
func (r *rig) untilRetrying(what, query string, args ...any) {
	r.t.Helper()
	r.untilTrue(what, func() (ok bool) {
		return r.db.QueryRow(query, args...).Scan(&ok) == nil && ok
	})
}
