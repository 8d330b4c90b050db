package main

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
)

// bulk returns a drive in which a worker acts on all open letters.
func runBulk(do string) func(*fixture, *workerProcess) {
	return func(s *fixture, h *workerProcess) { s.command(h, do, "") }
}

// lettersOf leaves a number of open letters, and no worker.
func lettersOf(n int) func(*fixture) {
	return func(s *fixture) {
		s.t.Helper()
		s.limit += time.Duration(n) * timePerLetter
		h := s.worker("", func(c *worker.Settings) { c.Slots = 32 })
		for i := range n {
			s.submit(h, adjudication(i+1, "refused", ""))
		}
		s.until("all are dead", `SELECT count(*) = $1 FROM recourse.runs WHERE letter = 'open'`, n)
		s.terminate(h)
	}
}

// No plan is left half done: every fork is an item that is done, and the reverse, and no
// letter was forked twice.
const bulkOnce = `SELECT NOT EXISTS (SELECT FROM recourse.bulks WHERE state = 'running' OR NOT settled)
	AND (SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL) = (SELECT count(*) FROM recourse.bulk_items WHERE outcome = 'done')
	AND (SELECT count(DISTINCT parent_id) = count(parent_id) FROM recourse.runs)
	AND NOT EXISTS (SELECT FROM recourse.bulk_items i WHERE outcome = 'done' AND NOT EXISTS (SELECT FROM recourse.runs r WHERE r.id = i.new_run AND r.parent_id = i.run_id))`

// The process that works on a plan is killed in the middle of it, twice: once between
// the commit of forks and their marks, once after marks. Other processes continue the
// plan, and do nothing twice.
func TestABulkForkSurvivesTwoKillsAndForksNothingTwice(t *testing.T) {
	t.Parallel()
	const n = 500
	s := newFixture(t)
	lettersOf(n)(s)
	plan := s.begun(n)
	for _, point := range []string{
		failpoint.Point(failpoint.JournalAfter, failpoint.Annotations),
		failpoint.Point(failpoint.JournalAfter, failpoint.BulkItem),
	} {
		s.awaitKilled(s.worker(point))
		if b, err := s.service.As("chaos", "").Bulk.Get(context.Background(), plan.ID); err != nil || b.State != bulk.Running || b.Progress.Pending == 0 {
			t.Errorf("after a kill at %s: %+v, %v", point, b, err)
		}
	}
	survivor := s.worker("", func(c *worker.Settings) { c.Slots = 32 })
	s.until("the plan is done", `SELECT state = 'done' FROM recourse.bulks WHERE id = $1`, plan.ID)
	s.awaitNoneLive()
	b, err := s.service.As("chaos", "").Bulk.Get(context.Background(), plan.ID)
	if err != nil || b.Progress.Done != n || b.Progress.Pending+b.Progress.PlanStale+b.Progress.Refused+b.Progress.Failed != 0 {
		t.Errorf("%+v, %v", b.Progress, err)
	}
	var forks int
	if err := s.db.QueryRow(`SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL`).Scan(&forks); err != nil || forks != n {
		t.Errorf("%d forks of %d letters, %v", forks, n, err)
	}
	s.until(bulkOnce, bulkOnce)
	s.checkConsistent()
	s.terminate(survivor)
}

// begun returns a running plan of all letters that no process works on yet.
func (s *fixture) begun(n int) bulk.Plan {
	s.t.Helper()
	plan, err := s.service.As("chaos", "user:ada").Bulk.Plan(context.Background(), bulk.Request{
		All: true, Action: bulk.Fork, Reason: "mended",
	})
	if err != nil || plan.Items != int64(n) || plan.Ready != int64(n) {
		s.t.Fatalf("%+v, %v", plan, err)
	}
	if plan, err = s.service.As("chaos", "user:bob").Bulk.Run(context.Background(), plan.ID, plan.Hash); err != nil {
		s.t.Fatal(err)
	}
	return plan
}

func (s *fixture) progress(b bulk.Plan) bulk.Progress {
	s.t.Helper()
	b, err := s.service.As("chaos", "").Bulk.Get(context.Background(), b.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	return b.Progress
}

// A plan is cancelled after the process that worked on it was killed between its forks
// and their marks: the forks are marked all the same, and no other item is started.
func TestACancelledPlanCountsWhatAKilledProcessDidForIt(t *testing.T) {
	t.Parallel()
	const n = 300 // more than are started at once
	s := newFixture(t)
	lettersOf(n)(s)
	plan := s.begun(n)
	s.awaitKilled(s.worker(failpoint.Point(failpoint.JournalAfter, failpoint.Annotations)))
	if p := s.progress(plan); p.Pending != n {
		t.Errorf("%+v", p)
	}
	if _, err := s.service.As("chaos", "user:cem").Bulk.Cancel(context.Background(), plan.ID, "not these"); err != nil {
		t.Fatal(err)
	}
	survivor := s.worker("", func(c *worker.Settings) { c.Slots = 32 })
	s.until(bulkOnce, bulkOnce)
	if p := s.progress(plan); p.Done == 0 || p.Done == n || p.Done+p.Pending != n {
		t.Errorf("%+v", p)
	}
	s.awaitNoneLive()
	s.checkConsistent()
	s.terminate(survivor)
}

const holdersSQL = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1919119988 AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// planLockHolder returns the session that holds the lock of the plan; 0 when none does.
func (s *fixture) planLockHolder() (pid int) {
	s.t.Helper()
	if err := s.db.QueryRow(`SELECT coalesce((` + holdersSQL + `), 0)`).Scan(&pid); err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// The process that works on a plan freezes in the middle of a commit, another process
// continues the plan, and then the first one wakes.
func TestAPlanWhoseWorkerIsFrozenForksNothingTwice(t *testing.T) {
	t.Parallel()
	for _, point := range []string{failpoint.Point(failpoint.JournalBefore, failpoint.Annotations), failpoint.Point(failpoint.JournalAfter, failpoint.Annotations)} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			const n = 20
			s := newFixture(t)
			lettersOf(n)(s)
			plan := s.begun(n)
			sleeper := s.worker("stop=" + point)
			s.frozen(sleeper)
			holder := s.planLockHolder()
			other := s.worker("")
			s.until("another has taken the plan up", `SELECT state = 'done' OR EXISTS (`+holdersSQL+` AND pid <> $1) FROM recourse.bulks`, holder)
			if err := sleeper.process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			s.until("the plan is done", `SELECT state = 'done' FROM recourse.bulks WHERE id = $1`, plan.ID)
			s.until("every item is done", `SELECT bool_and(outcome = 'done') FROM recourse.bulk_items`)
			s.until(bulkOnce, bulkOnce)
			s.awaitNoneLive()
			if p := s.progress(plan); p.Done != n || p.Failed != 0 {
				t.Errorf("%+v", p)
			}
			s.terminate(sleeper)
			s.terminate(other)
			s.checkConsistent()
		})
	}
}
