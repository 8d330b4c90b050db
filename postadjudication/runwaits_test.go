package postadjudication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// processes inserts sessions of running processes: each states what it serves, and why it claims
// nothing.
func session(r *rig.Rig, s background.Session) background.Session {
	r.T.Helper()
	ctx := context.Background()
	if s.ID == (uuid.UUID{}) {
		s.ID, s.Worker = uuid.New(), "other"
		if err := r.Journal().Sessions.Register(ctx, s); err != nil {
			r.T.Fatal(err)
		}
	}
	if s.BeatAt.IsZero() {
		s.BeatAt = r.Now()
	}
	if alive, _, err := r.Journal().Sessions.Beat(ctx, s); !alive || err != nil {
		r.T.Fatal(alive, err)
	}
	return s
}

// The status of a waiting run names what it waits for, in every case.
func TestTheStatusTellsWhatARunWaitsFor(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Shards = 1 })
	ctx := context.Background()
	first, run := r.MustSubmit(rig.Release(1)), r.MustSubmit(rig.Release(2))
	waits := func(when, what string) casestatus.Status {
		t.Helper()
		st, err := r.Status(ctx, "acme", run.Run)
		if err != nil || st.WaitsFor != what || st.WaitsBecause == "" {
			t.Errorf("%s: it waits for %q (%s), want %q; %v", when, st.WaitsFor, st.WaitsBecause, what, err)
		}
		c, err := r.Case(ctx, "acme", rig.Release(2).TransactionReceiptID)
		if err != nil || c.Runs[0].WaitsFor != what {
			t.Errorf("%s: its case says that it waits for %q, want %q; %v", when, c.Runs[0].WaitsFor, what, err)
		}
		return st
	}
	waits("nobody runs", casestatus.WaitsForFamily)
	other := session(r, background.Session{Queues: []string{"letters:0"}})
	waits("another family runs", casestatus.WaitsForFamily)
	other.Queues = []string{"settlement:7"}
	session(r, other)
	waits("another queue is served", casestatus.WaitsForQueue)
	if all, err := r.Health().Unserved(ctx); err != nil || len(all) != 1 || all[0] != (postadjudication.Unserved{Family: postadjudication.Family, Queue: "settlement:0", Runs: 2}) {
		t.Errorf("unserved: %+v, %v", all, err)
	}
	other.Queues, other.ClaimsBlockedBy = []string{"settlement:0"}, background.BlockedByClock
	session(r, other)
	waits("the only process's clock is off", casestatus.WaitsForClock)
	second := session(r, background.Session{Queues: []string{"settlement:0"}, ClaimsBlockedBy: background.BlockedByStaleClaims})
	waits("one of two clocks is off", casestatus.WaitsForClock)
	other.ClaimsBlockedBy = background.BlockedByServers
	session(r, other)
	waits("its servers are not its own", casestatus.WaitsForServers)
	other.ClaimsBlockedBy = background.BlockedByStaleClaims
	session(r, other)
	waits("claims grew old", casestatus.WaitsForClaims)
	second.ClaimsBlockedBy, second.Targets = "", []string{"elsewhere"}
	session(r, second)
	waits("its escrow service is not called", casestatus.WaitsForTarget)
	second.Targets = []string{"elsewhere", escrow.DefaultTarget}
	session(r, second)
	if all, err := r.Health().Unserved(ctx); err != nil || len(all) != 0 {
		t.Errorf("unserved: %+v, %v", all, err)
	}
	if st := waits("one before it", casestatus.WaitsForTurn); st.Ahead != 1 {
		t.Errorf("%d runs before it, want that of %s", st.Ahead, first.Run)
	}
	inspector := asynq.NewInspector(r.Redis)
	defer func() { _ = inspector.Close() }()
	if err := inspector.PauseQueue("settlement:0"); err != nil {
		t.Fatal(err)
	}
	waits("the queue is paused", casestatus.WaitsForPausedQueue)
	if err := inspector.UnpauseQueue("settlement:0"); err != nil {
		t.Fatal(err)
	}
	withLockedCase(r, run, func() { waits("a caller holds the case", casestatus.WaitsForCaseLock) })
	if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "test"); err != nil {
		t.Fatal(err)
	}
	waits("a breaker is open", casestatus.WaitsForBreaker)
	if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "test"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []background.Session{other, second} {
		s.BeatAt = r.Now().Add(-time.Minute)
		session(r, s)
	}
	waits("no process has shown itself for a minute", casestatus.WaitsForFamily)
	r.MustAudit()
}

// withLockedCase calls do while another transaction holds the case of a run that has been due
// for a while.
func withLockedCase(r *rig.Rig, s postadjudication.Submitted, do func()) {
	r.T.Helper()
	testkit.Tamper(r.T, r.DB, `UPDATE recourse.runs SET due_at = due_at - interval '1 hour' WHERE id = '`+s.Run.String()+`'`)
	tx, err := r.DB.Begin()
	if err != nil {
		r.T.Fatal(err)
	}
	if _, err := tx.Exec(`SELECT FROM recourse.cases WHERE id = $1 FOR NO KEY UPDATE`, s.Case.String()); err != nil {
		r.T.Fatal(err)
	}
	do()
	if err := tx.Rollback(); err != nil {
		r.T.Fatal(err)
	}
	testkit.Tamper(r.T, r.DB, `UPDATE recourse.runs SET due_at = due_at + interval '1 hour' WHERE id = '`+s.Run.String()+`'`)
}

// A run that was tried waits for its time, and one whose Redis is away says so.
func TestTheStatusTellsOfTheNextAttemptAndOfRedis(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Policy.BaseDelay, c.Policy.MaxDelay = time.Hour, time.Hour })
	r.Escrow.Answer(rig.RateLimits)
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitState(s.Run, background.Scheduled)
	if st := r.StatusOf(s.Run); st.WaitsFor != casestatus.WaitsForTime || st.Ahead != 0 {
		t.Errorf("it waits for %q: %s", st.WaitsFor, st.WaitsBecause)
	}
	r.StopWorkers()
	away := rig.Join(t, r.DatabaseURL, asynq.RedisClientOpt{Addr: "127.0.0.1:1"}, rig.NewEscrow())
	pending := away.MustSubmit(rig.Release(2))
	session(away, background.Session{Queues: []string{away.StatusOf(pending.Run).Queue}, Targets: []string{escrow.DefaultTarget}})
	if st := away.StatusOf(pending.Run); st.WaitsFor != casestatus.WaitsForRedis {
		t.Errorf("it waits for %q: %s", st.WaitsFor, st.WaitsBecause)
	}
	look := r.OtherProcess(func(c *postadjudication.Config) { c.Redis = nil })
	if st := look.StatusOf(pending.Run); st.WaitsFor != casestatus.WaitsForTurn {
		t.Errorf("seen without a Redis it waits for %q: %s", st.WaitsFor, st.WaitsBecause)
	}
}

// A letter of a family that no process has is not forked into a run that would wait for ever; as
// soon as a running process has it, it is.
func TestALetterOfAFamilyThatNobodyRunsIsNotForked(t *testing.T) {
	t.Parallel()
	fail := func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted}
		}}}
	}
	r := rig.New(t, fail).StartWorkers()
	ctx := context.Background()
	s, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitLetter(s.Run)
	other := r.OtherProcess()
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	if l := other.Letters(deadletter.Filter{}); len(l) != 1 || !l[0].CanFork {
		t.Errorf("while the family runs: %+v", l)
	}
	r.StopWorkers()
	other.Wait("nobody has the family", func() bool {
		l := other.Letters(deadletter.Filter{})
		return l[0].RefusedBy == refusal.GateFamilyNotServed && !l[0].CanFork
	})
	var refused *refusal.RefusedError
	if _, err := other.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, rig.ForkRequest); !errors.As(err, &refused) || refused.Gate != refusal.GateFamilyNotServed {
		t.Errorf("fork: %v", err)
	}
	third := r.OtherProcess(fail).StartWorkers()
	other.Wait("somebody has it again", func() bool { return other.Letters(deadletter.Filter{})[0].CanFork })
	if _, err := other.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, rig.ForkRequest); err != nil {
		t.Error(err)
	}
	third.WaitRuns(2, rig.Runs{State: background.DeadLettered})
	r.MustAudit()
}

// A caller who names another tenant, or none, gets ErrNotFound or nothing from every
// read.
func TestARunOfAnotherTenantIsNotThere(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Executor = nil })
	s := r.MustSubmit(rig.Release(1))
	ctx := context.Background()
	for _, tenant := range []string{"globex", ""} {
		_, status := r.Status(ctx, tenant, s.Run)
		_, cancelled := r.As(tenant, "clerk").Cases.Cancel(ctx, s.Run, "not mine")
		_, forked := r.As(tenant, "clerk").DeadLetters.Fork(ctx, s.Run, deadletter.Fork{Reason: "not mine"})
		_, byID := r.CaseByID(ctx, tenant, s.Case)
		_, found := r.As(tenant, "clerk").DeadLetters.Reconcile(rig.AsOnePerson(ctx), s.Run, deadletter.Finding{Reason: "not mine", Class: escrow.NotExecuted, Reference: "none"})
		for what, err := range map[string]error{"status": status, "cancel": cancelled, "fork": forked, "case": byID, "finding": found} {
			if !errors.Is(err, refusal.ErrNotFound) {
				t.Errorf("%s of tenant %q: %v", what, tenant, err)
			}
		}
		if rs, err := r.Receipts(ctx, tenant, s.Case, 0, 10); err != nil || len(rs) != 0 {
			t.Errorf("receipts of tenant %q: %d, %v", tenant, len(rs), err)
		}
	}
	if _, err := r.Status(ctx, "acme", s.Run); err != nil {
		t.Errorf("its own tenant: %v", err)
	}
}
