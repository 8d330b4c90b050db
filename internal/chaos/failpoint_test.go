package main

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// transition leads a worker to a point of one kind of change, in which it dies.
type transition struct {
	// before makes the situation, with a sound worker of its own if need be.
	before func(*stage)
	// lead drives the worker that is to die; nil when it finds the point by itself.
	lead func(*stage, *hand)
	// waits is for how long a run stays scheduled, so that something can be done with it.
	waits time.Duration
	// handled gives every worker a handler of dead letters.
	handled bool
	// retain is how long every worker keeps letters; with it there is an archive.
	retain string
	// ends is what the survivors do by themselves, and must have done before everything is
	// at rest: a query of one bool.
	ends string
	// holds is what must be true at the end, beside what always must: a query of one bool.
	holds string
	again func(*stage, *hand) // what the survivor is asked for again, where it does not go on by itself
}

func submits(words, executor string) func(*stage, *hand) {
	return func(s *stage, h *hand) { s.submit(h, adjudication(1, words, executor)) }
}

// names hands over within a caller's transaction, where a new escrow is written first
// and by itself.
func names(s *stage, h *hand) { s.hand(h, worker.SubmitTx, adjudication(1, "ok", "")) }

// orphan leaves a run to whom no process belongs any more: a worker was killed at a
// point of it.
func orphan(point string) func(*stage) {
	return func(s *stage) {
		h := s.worker(point)
		s.submit(h, adjudication(1, "ok", ""))
		s.died(h)
	}
}

// letter leaves an open dead letter, and nobody at work.
func letter(s *stage) {
	h := s.worker("")
	s.submit(h, adjudication(1, "refused", ""))
	s.untilRun("dead_lettered")
	s.quit(h)
}

// higher is the next generation of the adjudication whose letter is open.
func higher(s *stage, h *hand) {
	a := adjudication(1, "ok", "")
	a.Generation, a.AdjudicationID = 2, "adj_1b"
	s.submit(h, a)
}

// pullAll opens the circuit breaker over all tenants by hand.
func pullAll(s *stage, h *hand) { s.tellFor(h, worker.Pull, postadjudication.AllTenants, "") }

// pull opens the tenant's circuit breaker by hand, with something handed over to be
// paused.
func pull(s *stage, h *hand) {
	s.submit(h, adjudication(1, "ok", ""))
	s.tell(h, worker.Pull, "")
}

// tune sets the policy of the tenant's settlements.
func tune(s *stage, h *hand, attempts int) {
	s.t.Helper()
	r, err := h.ask(s.ctx(), worker.Command{Do: worker.Tune, Tenant: "chaos", Attempts: attempts})
	if !errors.Is(err, errGone) && (err != nil || r.Error != "") {
		s.t.Fatalf("tune: %v %s", err, r.Error)
	}
}

// setPeople sets how many people the tenant's money takes.
func setPeople(s *stage, h *hand, n int) {
	s.t.Helper()
	r, err := h.ask(s.ctx(), worker.Command{Do: worker.People, Tenant: "chaos", Attempts: n})
	if !errors.Is(err, errGone) && (err != nil || r.Error != "") {
		s.t.Fatalf("people: %v %s", err, r.Error)
	}
}

const freedOnce = `SELECT (SELECT count(*) = 1 FROM recourse.receipts WHERE subtype = 'reservation-freed') AND (SELECT bool_and(reserved = 0 AND progression = 'review-needed') FROM recourse.cases WHERE kind = 'settlement')
	AND (SELECT bool_and(state = 'done') FROM recourse.bulks)`

func keys(s *stage, h *hand) { s.tell(h, worker.Keys, "") }

// askCancel asks to cancel a run while it is called. A call hangs for a moment only: on a busy
// machine a run may have ended before it is asked about, and another one is tried.
func askCancel(s *stage, h *hand) {
	s.t.Helper()
	for n := 1; n <= 20; n++ {
		s.submit(h, adjudication(n, "hang,hang,ok", ""))
		const newest = `id = (SELECT id FROM recourse.runs ORDER BY id DESC LIMIT 1)`
		s.until("the run is called", `SELECT state <> 'pending' FROM recourse.runs WHERE `+newest)
		r, err := h.ask(s.ctx(), worker.Command{Do: worker.Cancel, Tenant: "chaos", Run: s.onlyRun(newest)})
		switch {
		case errors.Is(err, errGone):
			return
		case err != nil:
			s.t.Fatal(err)
		case r.Error == "":
			s.t.Fatal("the mark was set, and the point not reached")
		}
	}
}

// transitions are all kinds of change that the journal writes, and the bells and
// calls between them, by what their points are named for.
var transitions = map[string]transition{
	failpoint.Escrow: {lead: names},
	failpoint.Open:   {lead: submits("ok", "")},
	failpoint.Correct: {
		before: func(s *stage) { // an escrow without a case
			h := s.worker(failpoint.Point(failpoint.JournalAfter, failpoint.Escrow))
			names(s, h)
			s.died(h)
		},
		lead: func(s *stage, h *hand) {
			a := adjudication(1, "ok", "")
			a.Held.Minor += 5000
			s.submit(h, a)
		},
	},
	string(receipts.Submitted):        {before: letter, lead: higher},
	string(receipts.Superseded):       {before: letter, lead: higher},
	string(receipts.AttemptStarted):   {lead: submits("ok", "")},
	string(receipts.AttemptSucceeded): {lead: submits("ok", "")},
	string(receipts.RetryScheduled):   {lead: submits("retryable,ok", "")},
	string(receipts.DeadLettered):     {lead: submits("refused", "")},
	string(receipts.AttemptInterrupted): {
		before: orphan(failpoint.Point(failpoint.CallBefore, failpoint.Executor)),
	},
	string(receipts.AnsweredLate): {lead: submits("late", worker.Stubborn)},
	string(receipts.Reconciled): {
		lead:  submits("late", worker.Stubborn),
		waits: 3 * time.Second,
	},
	string(receipts.ConservationBreach): {lead: submits("ok", worker.Lies)},
	failpoint.Fold: { // of what was paid beyond the reservation
		lead: submits("ok", worker.Lies),
		ends: `SELECT NOT EXISTS (SELECT FROM recourse.escrow_deltas)`,
	},
	string(receipts.Cancelled): {
		lead: func(s *stage, h *hand) {
			s.submit(h, adjudication(1, "retryable,ok", ""))
			s.untilRun("scheduled")
			s.tell(h, worker.Cancel, s.onlyRun("live"))
		},
		waits: 3 * time.Second,
	},
	failpoint.Ask: {lead: askCancel},
	string(receipts.ManualRetryRequested): {
		before: letter,
		lead:   func(s *stage, h *hand) { s.tell(h, worker.Fork, s.onlyRun("letter = 'open'")) },
	},
	string(receipts.OutOfBandChangeDetected): {before: func(s *stage) {
		s.ringOnly(adjudication(1, "ok", ""))
		s.archive()
	}},
	string(receipts.BrakePulled): { // its case is there already
		before: func(s *stage) { h := s.worker(""); pull(s, h); s.tell(h, worker.Release, ""); s.quit(h) },
		lead:   pull,
	},
	failpoint.Brake: {lead: pull},
	string(receipts.BrakeReleased): {
		before: func(s *stage) { h := s.worker(""); pull(s, h); s.quit(h) },
		lead:   func(s *stage, h *hand) { s.tell(h, worker.Release, "") },
	},
	failpoint.BrakeStep: { // the paused work is let through by probes
		before: func(s *stage) {
			h := s.worker("")
			pullAll(s, h)
			s.submit(h, adjudication(2, "ok", ""), adjudication(3, "ok", ""))
			s.quit(h)
		},
		lead: func(s *stage, h *hand) { s.tellFor(h, worker.Release, postadjudication.AllTenants, "") },
	},
	failpoint.BrakeTell: {
		before: func(s *stage) { h := s.worker(""); pullAll(s, h); s.quit(h) },
		lead:   submits("ok", ""),
	},
	string(receipts.PolicyChanged): { // its case is there already
		before: func(s *stage) { h := s.worker(""); tune(s, h, 4); s.quit(h) },
		lead:   func(s *stage, h *hand) { tune(s, h, 5) },
	},
	failpoint.Handler: { // it begins in the death's own commit, or there is no death
		lead: submits("refused", ""), handled: true,
		holds: `SELECT count(*) = 1 AND bool_and(d.state = 'dead_lettered' AND r.state = 'succeeded' AND r.retry_key = 'dlq:' || d.id)
			FROM recourse.runs r LEFT JOIN recourse.handlers h ON h.run = r.id LEFT JOIN recourse.runs d ON d.id = h.letter WHERE r.family <> 'settlement'`,
	},
	failpoint.Desk:                    {before: letter, lead: desk(worker.Hold), holds: heldOnce},
	string(receipts.HoldPlaced):       {before: letter, lead: desk(worker.Hold), holds: heldOnce},
	string(receipts.HoldReleased):     {before: held, lead: desk(worker.LetGo), holds: heldOnce},
	string(receipts.Marked):           {before: letter, lead: desk(worker.Mark), holds: markedOnce},
	string(receipts.Purged):           {before: letter, lead: desk(worker.Purge), holds: purgedOnce},
	string(receipts.RetentionEnding):  {before: letter, retain: "PT1S", holds: expiredOnce},
	string(receipts.RetentionExpired): {before: letter, retain: "PT1S", holds: expiredOnce},
	failpoint.BulkItems:               {before: letter, lead: bulk(worker.Bulk), ends: bulkOnce},
	failpoint.BulkPlan:                {before: letter, lead: bulk(worker.Bulk), ends: bulkOnce},
	failpoint.BulkForget: { // what a plan left that was never kept
		before: func(s *stage) {
			letter(s)
			s.exec(`INSERT INTO recourse.bulk_counts (bulk_id, ran, word, currency, items, amount) VALUES ('00000000-0000-7000-8000-000000000001', false, '', '', 1, 1)`)
		},
		lead: bulk(worker.Bulk), ends: bulkOnce,
	},
	failpoint.BulkMove: {before: letter, lead: bulk(worker.Bulk), ends: bulkOnce},
	failpoint.BulkItem: {before: letter, lead: bulk(worker.Bulk), ends: bulkOnce},
	failpoint.BulkRest: {before: lettersOf(4), lead: bulk(worker.Break), ends: bulkOnce},
	string(receipts.BulkChanged): { // the register is there already
		before: func(s *stage) {
			h := s.worker("")
			bulk(worker.Bulk)(s, h)
			s.until("a plan is done", `SELECT EXISTS (SELECT FROM recourse.bulks WHERE state = 'done')`)
			s.quit(h)
			letter(s)
		},
		lead: bulk(worker.Bulk), ends: bulkOnce,
	},
	failpoint.Rebuild: {before: unlisted, lead: rebuild, again: rebuild, holds: listed},
	string(receipts.DeadLettersRebuilt): { // the register is there already
		before: func(s *stage) {
			unlisted(s)
			h := s.worker("")
			rebuild(s, h)
			s.quit(h)
			s.exec(`DELETE FROM recourse.letters`)
		},
		lead: rebuild, again: rebuild, holds: listed,
	},
	string(receipts.ReservationFreed): {before: letter, lead: func(s *stage, h *hand) { s.tell(h, worker.Free, "") }, ends: freedOnce, holds: freedOnce},
	failpoint.People:                  {lead: func(s *stage, h *hand) { setPeople(s, h, 1) }},
	string(receipts.PeopleChanged): { // the register is there already
		before: func(s *stage) { h := s.worker(""); setPeople(s, h, 1); s.quit(h) },
		lead:   func(s *stage, h *hand) { setPeople(s, h, 2) },
	},
	failpoint.Rule:            {before: letter, lead: rule(1), holds: ruledOnce},
	failpoint.RuleAct:         {before: letter, lead: rule(1), ends: replayedOnce, holds: replayedOnce},
	string(receipts.Replayed): {before: letter, lead: rule(1), ends: replayedOnce, holds: replayedOnce},
	string(receipts.RuleChanged): { // the register is there already
		before: func(s *stage) { h := s.worker(""); rule(1)(s, h); s.quit(h) },
		lead:   rule(2), holds: ruledOnce,
	},
	failpoint.Policy: {lead: func(s *stage, h *hand) { tune(s, h, 4) }},
	failpoint.Key:    {lead: keys},
	failpoint.KeyUse: {lead: keys},
	string(receipts.KeyCreated): { // the register is there already
		before: func(s *stage) { h := s.worker(""); keys(s, h); s.quit(h) },
		lead:   keys,
	},
	string(receipts.KeyRevoked): {lead: keys},
	string(receipts.AccessRefused): { // the register is there already
		before: func(s *stage) { h := s.worker(""); s.tell(h, worker.Refuse, ""); s.quit(h) },
		lead:   func(s *stage, h *hand) { s.tell(h, worker.Refuse, "") },
	},
	failpoint.Refusal: {
		before: letter,
		lead:   func(s *stage, h *hand) { s.tell(h, worker.Refuse, s.onlyRun("letter = 'open'")) },
	},
	failpoint.Refused: {
		before: func(s *stage) {
			h := s.worker("")
			s.submit(h, adjudication(1, "ok", ""))
			s.atRest()
			s.quit(h)
		},
		lead:  higher,
		holds: `SELECT count(*) = 1 FROM recourse.receipts WHERE subtype = 'refused'`,
	},
	failpoint.Request:  {lead: func(s *stage, h *hand) { s.tell(h, worker.Request, "") }},
	failpoint.Sequence: {lead: submits("ok", "")},
	failpoint.Project:  {lead: submits("refused", "")},
	failpoint.Ring:     {before: orphan(failpoint.Point(failpoint.BellBefore, failpoint.Task))},
	failpoint.Install:  {},
	failpoint.Timeline: {},
	failpoint.Targets:  {},
	failpoint.Enlist:   {},
	failpoint.Lookup:   {}, // each round forgets what is open no more
	failpoint.Beat:     {lead: submits("ok", "")},
	failpoint.Bury:     {before: orphan(failpoint.Point(failpoint.CallAfter, failpoint.Executor))},
	failpoint.Dismiss: {lead: func(s *stage, h *hand) {
		s.until("the process is known", `SELECT EXISTS (SELECT FROM recourse.sessions)`)
		s.leave(h)
	}},
}

// points are the moments of a transition's life in the journal.
var moments = []failpoint.Moment{failpoint.JournalBefore, failpoint.JournalAfter}

// A worker that is killed with SIGKILL at any point of any transition loses nothing:
// after another has taken over, and everything was handed over once more, every
// adjudication is accounted for, every chain verifies, and the escrow service has
// paid each operation key at most once and what the receipts say.
func TestAKillAtAnyPointOfAnyTransitionLosesNothing(t *testing.T) {
	for what, tr := range transitions {
		for _, m := range moments {
			killAt(t, failpoint.Point(m, what), tr)
		}
	}
	for _, m := range []failpoint.Moment{failpoint.BellBefore, failpoint.BellAfter} {
		killAt(t, failpoint.Point(m, failpoint.Task), transition{lead: submits("ok", "")})
	}
	for _, m := range []failpoint.Moment{failpoint.CallBefore, failpoint.CallAfter} {
		killAt(t, failpoint.Point(m, failpoint.Executor), transition{lead: submits("ok", "")})
	}
}

func killAt(t *testing.T, point string, tr transition) {
	t.Run(point, func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		if tr.before != nil {
			tr.before(s)
		}
		archive := t.TempDir()
		h := s.worker(point, func(c *worker.Settings) {
			c.BaseDelay, c.Handled, c.Archive, c.Retain = max(c.BaseDelay, tr.waits), tr.handled, archive, tr.retain
		})
		if tr.lead != nil {
			tr.lead(s, h)
		}
		s.died(h)
		survivor := s.worker("", func(c *worker.Settings) { c.Handled, c.Archive, c.Retain = tr.handled, archive, tr.retain })
		s.askAgain(survivor)
		s.release(survivor)
		if tr.again != nil {
			tr.again(s, survivor)
		}
		if tr.ends != "" {
			s.until(tr.ends, tr.ends)
		}
		s.atRest()
		s.sound()
		if tr.holds != "" {
			s.until(tr.holds, tr.holds)
		}
		s.archivedWhatWentBy(archive)
		s.quit(survivor)
	})
}

// A caller's transaction that dies with its process before it commits leaves
// nothing, and one that has committed executes though nobody rang.
func TestAKillInsideACallersTransactionIsAllOrNothing(t *testing.T) {
	for point, committed := range map[string]bool{
		failpoint.Point(failpoint.JournalBefore, failpoint.Open): false,
		failpoint.Point(failpoint.JournalAfter, failpoint.Open):  false,
		failpoint.Point(failpoint.BellBefore, failpoint.Task):    true,
		failpoint.Point(failpoint.BellAfter, failpoint.Task):     true,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			h := s.worker(point)
			s.hand(h, worker.SubmitTx, adjudication(1, "ok", ""))
			s.died(h)
			var runs int
			if err := s.db.QueryRow(`SELECT count(*) FROM recourse.runs`).Scan(&runs); err != nil || (runs == 1) != committed {
				t.Fatalf("%d runs after the kill, %v", runs, err)
			}
			survivor := s.worker("")
			s.askAgain(survivor)
			s.atRest()
			s.sound()
			if n := len(s.escrow.Effects()); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// A worker that freezes at a point for longer than it takes to be declared lost,
// and then wakes up, pays nothing twice and writes nothing over what was done
// meanwhile.
func TestAFreezeAtAnyPointOfAnAttemptPaysOnce(t *testing.T) {
	for _, point := range []string{
		failpoint.Point(failpoint.JournalBefore, string(receipts.AttemptStarted)),
		failpoint.Point(failpoint.JournalAfter, string(receipts.AttemptStarted)),
		failpoint.Point(failpoint.CallBefore, failpoint.Executor),
		failpoint.Point(failpoint.CallAfter, failpoint.Executor),
		failpoint.Point(failpoint.JournalBefore, string(receipts.AttemptSucceeded)),
		failpoint.Point(failpoint.JournalAfter, string(receipts.AttemptSucceeded)),
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			sleeper := s.worker("stop=" + point)
			replied := s.later(sleeper, adjudication(1, "ok", ""))
			s.frozen(sleeper)
			other := s.worker("")
			s.atRest()
			if err := sleeper.process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			replied()
			s.submit(sleeper, adjudication(2, "ok", "")) // it works again
			s.atRest()
			s.quit(sleeper)
			s.quit(other)
			s.sound()
			if n := len(s.escrow.Effects()); n != 2 {
				t.Errorf("%d effects of two adjudications", n)
			}
		})
	}
}
