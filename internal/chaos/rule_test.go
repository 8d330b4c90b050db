package main

import (
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// rule has a worker set a rule that replays all open letters a number of times.
func rule(most int) func(*fixture, *workerProcess) {
	return func(s *fixture, h *workerProcess) {
		s.t.Helper()
		r, err := h.ask(s.ctx(), worker.Command{Do: worker.Rule, Tenant: "chaos", Attempts: most})
		if !errors.Is(err, errWorkerEnded) && (err != nil || r.Error != "") {
			s.t.Fatalf("rule: %v %s", err, r.Error)
		}
	}
}

const (
	// Nobody repeats the request here: the rule was set with its receipt, or not at all.
	ruledOnce = `SELECT coalesce((SELECT max(version) FROM recourse.rules), 0) = (SELECT count(*) FROM recourse.receipts WHERE subtype = 'rule-changed')`

	// Rules continue by themselves, and replay each lineage exactly as often as they may:
	// forks, counts and receipts agree. An attempt that a kill interrupts is unknown, and no
	// rule replays its letter.
	replayedOnce = `SELECT count(*) > 0 AND bool_and((coalesce(c.replays, 0) = (SELECT (definition::json->>'max_replays')::int FROM recourse.rules)
			OR EXISTS (SELECT FROM recourse.runs u WHERE u.case_id = r.case_id AND u.letter = 'open' AND u.class <> 'not_executed'))
		AND coalesce(c.replays, 0) = (SELECT count(*) FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.subtype = 'replayed' AND e.actor = 'rule:all')
		AND coalesce(c.replays, 0) = (SELECT count(*) FROM recourse.runs f WHERE f.case_id = r.case_id AND f.parent_id IS NOT NULL))
		FROM recourse.runs r LEFT JOIN recourse.rule_replays c ON c.root = r.id WHERE r.parent_id IS NULL AND r.dead_at IS NOT NULL`
)

// The process that applies a rule is killed in the middle of it, once before and once
// after the commit that a page of replays shares. Other processes replay the rest, each
// letter as often as the rule says unless its outcome became unknown by the kill, and none
// more often.
func TestARuleSurvivesTwoKillsAndReplaysNothingOnceTooOften(t *testing.T) {
	t.Parallel()
	const letters = 40
	s := newFixture(t)
	s.limit += letters * timePerLetter
	setter := s.worker("")
	for n := range letters {
		s.submit(setter, adjudication(n+1, "refused,refused,refused", "")) // itself, and both its forks
	}
	s.until("all are dead", `SELECT count(*) = $1 FROM recourse.runs WHERE letter = 'open'`, letters)
	s.terminate(setter)
	setter = s.worker("", func(c *worker.Settings) { c.CommandsOnly = true })
	rule(2)(s, setter)
	s.terminate(setter)
	for _, point := range []string{
		failpoint.Point(failpoint.JournalBefore, failpoint.RuleAction),
		failpoint.Point(failpoint.JournalAfter, failpoint.RuleAction),
	} {
		s.awaitKilled(s.worker(point))
	}
	survivor := s.worker("")
	s.until("each was replayed as often as it may be", replayedOnce)
	s.awaitNoneLive()
	s.until(replayedOnce, replayedOnce)
	s.checkConsistent()
	s.terminate(survivor)
}
