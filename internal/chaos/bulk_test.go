package main

import (
	"context"
	"testing"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication"
)

// bulk has a worker do something with all open letters.
func bulk(do string) func(*stage, *hand) {
	return func(s *stage, h *hand) { s.tell(h, do, "") }
}

// lettersOf leaves so many open letters, and nobody at work.
func lettersOf(n int) func(*stage) {
	return func(s *stage) {
		s.t.Helper()
		h := s.worker("", func(c *worker.Settings) { c.Slots = 32 })
		for i := range n {
			s.submit(h, adjudication(i+1, "refused", ""))
		}
		s.until("all are dead", `SELECT count(*) = $1 FROM recourse.runs WHERE letter = 'open'`, n)
		s.quit(h)
	}
}

// No plan is left half done, or in doubt: every fork is an item that is done, and the
// other way round, and no letter was forked twice.
const bulkOnce = `SELECT NOT EXISTS (SELECT FROM recourse.bulks WHERE state = 'running' OR NOT settled)
	AND (SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL) = (SELECT count(*) FROM recourse.bulk_items WHERE outcome = 'done')
	AND (SELECT count(DISTINCT parent_id) = count(parent_id) FROM recourse.runs)
	AND NOT EXISTS (SELECT FROM recourse.bulk_items i WHERE outcome = 'done' AND NOT EXISTS (SELECT FROM recourse.runs r WHERE r.id = i.new_run AND r.parent_id = i.run_id))`

// The process that works on a plan is killed in the middle of it, twice: once between
// the commit of forks and their marks, once between marks and what follows. Others take
// the plan up and do what is left, and nothing twice.
func TestABulkForkSurvivesTwoKillsAndForksNothingTwice(t *testing.T) {
	t.Parallel()
	const n = 500
	s := newStage(t)
	lettersOf(n)(s)
	plan, err := s.service.PlanBulk(context.Background(), postadjudication.BulkRequest{
		Tenant: "chaos", All: true, Action: postadjudication.BulkFork, Actor: "user:ada", Reason: "mended",
	})
	if err != nil || plan.Items != n || plan.Ready != n {
		t.Fatalf("%+v, %v", plan, err)
	}
	if _, err := s.service.RunBulk(context.Background(), "chaos", plan.ID, plan.Hash, "user:bob"); err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{
		failpoint.Point(failpoint.JournalAfter, failpoint.Desk),
		failpoint.Point(failpoint.JournalAfter, failpoint.BulkItem),
	} {
		s.died(s.worker(point))
		if b, err := s.service.Bulk(context.Background(), "chaos", plan.ID); err != nil || b.State != postadjudication.BulkRunning || b.Progress.Pending == 0 {
			t.Errorf("after a kill at %s: %+v, %v", point, b, err)
		}
	}
	survivor := s.worker("", func(c *worker.Settings) { c.Slots = 32 })
	s.until("the plan is done", `SELECT state = 'done' FROM recourse.bulks WHERE id = $1`, plan.ID)
	s.atRest()
	b, err := s.service.Bulk(context.Background(), "chaos", plan.ID)
	if err != nil || b.Progress.Done != n || b.Progress.Pending+b.Progress.PlanStale+b.Progress.Refused+b.Progress.Failed != 0 {
		t.Errorf("%+v, %v", b.Progress, err)
	}
	var forks int
	if err := s.db.QueryRow(`SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL`).Scan(&forks); err != nil || forks != n {
		t.Errorf("%d forks of %d letters, %v", forks, n, err)
	}
	s.until(bulkOnce, bulkOnce)
	s.sound()
	s.quit(survivor)
}
