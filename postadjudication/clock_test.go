package postadjudication_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// withClockAhead returns a machine whose clock is wrong.
func withClockAhead(d time.Duration) func(*postadjudication.Config) {
	return func(c *postadjudication.Config) { c.Now = func() time.Time { return time.Now().Add(d) } }
}

// Machines with different clocks do not repeat a call past the lifetime of its key: the first
// call and every later one are timed by the database.
func TestClocksThatDifferRepeatNothingPastTheKeyLifetime(t *testing.T) {
	t.Parallel()
	const ahead = 6 * time.Second
	r := rig.New(t, withClockAhead(ahead), func(c *postadjudication.Config) {
		c.LostAfter, c.TimeLimit = 3*time.Second, time.Second
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay = 3, 5*time.Second
		c.Executor.(*rig.Escrow).KeyLife = 10 * time.Second
	})
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		a := r.Escrow.Pay(c, c.Amount.Minor)
		if c.Attempt == 1 {
			return rig.NoAnswer() // it paid, but its answer is lost
		}
		return a
	})
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer { return escrow.Answer{Class: escrow.Unknown, Type: "down"} })
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Scheduled)
	r.StopWorkers()
	if n := r.Count(`SELECT count(*) FROM recourse.runs WHERE id = $1 AND due_at BETWEEN now() AND now() + '5s'`, s.Run.String()); n != 1 {
		t.Error("the due time is not by the database's clock")
	}
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, func(c *postadjudication.Config) { c.LostAfter, c.TimeLimit = 3*time.Second, time.Second }).StartWorkers()
	r.WaitNoneLive()
	r.MustAudit()
}

// A machine whose clock is ahead starts no attempt early, by the clock of the escrow service.
func TestAClockThatIsAheadStartsNothingEarly(t *testing.T) {
	t.Parallel()
	const delay = 4 * time.Second
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.BaseDelay = delay })
	var mu sync.Mutex
	var calls []time.Time
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		mu.Lock()
		calls = append(calls, time.Now())
		mu.Unlock()
		if c.Attempt == 1 {
			return rig.RateLimited()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Scheduled)
	r.StopWorkers()
	client := r.Redis.MakeRedisClient().(redis.UniversalClient) // only the sweeper of the other machine delivers it
	if err := client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withClockAhead(8*time.Second)).StartWorkers()
	r.WaitNoneLive()
	if gap := calls[1].Sub(calls[0]); gap < delay-50*time.Millisecond {
		t.Errorf("attempt 2 came %s after the first, not %s", gap, delay)
	}
	r.MustAudit()
}

// A process whose clock is off, while the others' are not, leaves the work to them.
func TestAProcessWhoseClockIsOffLeavesTheWorkToOthers(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.WaitClocksMeasured(1)
	off := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withClockAhead(-3*time.Second), func(c *postadjudication.Config) { c.Worker = "off" }).StartWorkers()
	off.Wait("it says so", func() bool {
		err := off.Health().Check(context.Background())
		return err != nil && strings.Contains(err.Error(), "the clock of this machine is ")
	})
	for n := range 10 {
		off.MustSubmit(rig.Release(n))
	}
	r.WaitNoneLive()
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.AttemptStarted, Actor: "worker:off"}); n != 0 {
		t.Errorf("%d claims by a clock that is off", n)
	}
	if err := r.Health().Check(context.Background()); err != nil {
		t.Error(err)
	}
	r.MustAudit()
}

// Submissions of a process that executes nothing also have the database's time.
func TestWhatIsHandedOverHasTheDatabasesTime(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withClockAhead(time.Hour), func(c *postadjudication.Config) { c.Executor = nil })
	s := r.MustSubmit(rig.Release(1))
	if n := r.Count(`SELECT count(*) FROM recourse.runs r JOIN recourse.receipts p ON p.case_id = r.case_id
		WHERE r.id = $1 AND r.due_at <= now() AND p.at BETWEEN now() - '1m'::interval AND now()`, s.Run.String()); n != 1 {
		t.Error("the submission is dated an hour ahead")
	}
}

// After a restore that lost the rows of sessions, the audit reports the loss, and the system
// repairs itself.
func TestARunWhoseSessionIsGoneIsFoundAndContinues(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	s := r.MustSubmit(rig.Release(1))
	seen, err := r.Journal().Cases.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Claim(context.Background(), seen.Run); err != nil {
		t.Fatal(err)
	}
	if _, err := r.DB.Exec(`DELETE FROM recourse.sessions`); err != nil {
		t.Fatal(err)
	}
	a, err := r.Audit(ctx)
	if err != nil || !strings.Contains(a.Verdict(audit.InvariantAccounted), "session") {
		t.Errorf("the audit says %q, %v", a.Verdict(audit.InvariantAccounted), err)
	}
	r2 := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, func(c *postadjudication.Config) { c.LostAfter = 3 * time.Second }).StartWorkers()
	r2.WaitNoneLive()
	if st, err := r2.Status(ctx, "acme", s.Run); err != nil || st.State != background.Succeeded || st.Recoveries != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	r2.MustAudit()
}
