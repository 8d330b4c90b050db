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

// killCase drives workers to the points of one kind of change, at which they are killed.
type killCase struct {
	// before prepares the state, with another worker if necessary.
	before func(*fixture)
	// drive drives each worker that is killed; nil when it reaches its point by itself.
	drive func(*fixture, *workerProcess)
	// resumes means that a worker continues by itself what the one before it began: only the first is driven.
	resumes bool
	// apart kills each worker in a fixture of its own: after a kill just before the change no other worker makes
	// it, or what a predecessor leaves would be taken for the worker's.
	apart bool
	// baseDelay is how long a run stays scheduled, so that the test can act on it.
	baseDelay time.Duration
	// remoteKeyLifetime is for how long the payment services of remote workers recognise operation keys.
	remoteKeyLifetime time.Duration
	// handled gives every worker a handler of dead letters.
	handled bool
	// retain is the retention of letters in every worker; with it there is an archive.
	retain string
	// arrives gives every worker webhooks, and the test a receiver at which every event of the tenant
	// arrives in the end.
	arrives bool
	// settledSQL is a query of one bool that becomes true by the work of the surviving workers,
	// before the invariants are checked.
	settledSQL string
	// invariantSQL is a query of one bool that must be true at the end, besides the general invariants.
	invariantSQL string
	again        func(*fixture, *workerProcess) // repeats the request to the survivor, where it does not continue by itself
}

func submits(words, executor string) func(*fixture, *workerProcess) {
	return func(s *fixture, h *workerProcess) { s.submit(h, adjudication(1, words, executor)) }
}

// submitNamed submits in a caller's transaction, where a new escrow is written first, by a
// statement of its own.
func submitNamed(s *fixture, h *workerProcess) {
	s.submitAs(h, worker.SubmitTx, adjudication(1, "ok", ""))
}

// orphanAt leaves a run without a process: its worker was killed at a point.
func orphanAt(point string) func(*fixture) {
	return func(s *fixture) {
		h := s.worker(point)
		s.submit(h, adjudication(1, "ok", ""))
		s.awaitKilled(h)
	}
}

// letter leaves an open dead letter, and no worker.
func letter(s *fixture) {
	h := s.worker("")
	s.submit(h, adjudication(1, "refused", ""))
	s.untilRun("dead_lettered")
	s.terminate(h)
}

// submitHigher submits the next generation of the adjudication whose letter is open.
func submitHigher(s *fixture, h *workerProcess) {
	a := adjudication(1, "ok", "")
	a.Generation, a.AdjudicationID = 2, "adj_1b"
	s.submit(h, a)
}

// openAllBreakers opens the circuit breaker over all tenants by hand.
func openAllBreakers(s *fixture, h *workerProcess) {
	s.commandFor(h, worker.OpenBreaker, postadjudication.AllTenants, "")
}

// openBreakerOf opens the tenant's circuit breaker by hand, and submits an adjudication that
// is paused.
func openBreakerOf(s *fixture, h *workerProcess) {
	s.submit(h, adjudication(1, "ok", ""))
	s.command(h, worker.OpenBreaker, "")
}

// setPolicy sets the policy of the tenant's settlements.
func setPolicy(s *fixture, h *workerProcess, attempts int) {
	s.t.Helper()
	r, err := h.ask(s.ctx(), worker.Command{Do: worker.SetPolicy, Tenant: "chaos", Attempts: attempts})
	if !errors.Is(err, errWorkerEnded) && (err != nil || r.Error != "") {
		s.t.Fatalf("tune: %v %s", err, r.Error)
	}
}

// setPeople sets how many people the tenant's money takes.
func setPeople(s *fixture, h *workerProcess, n int) {
	s.t.Helper()
	r, err := h.ask(s.ctx(), worker.Command{Do: worker.People, Tenant: "chaos", Attempts: n})
	if !errors.Is(err, errWorkerEnded) && (err != nil || r.Error != "") {
		s.t.Fatalf("people: %v %s", err, r.Error)
	}
}

const freedOnce = `SELECT (SELECT count(*) = 1 FROM recourse.receipts WHERE subtype = 'reservation-freed') AND (SELECT bool_and(reserved = 0 AND progression = 'review-needed') FROM recourse.cases WHERE kind = 'settlement')
	AND (SELECT bool_and(state = 'done') FROM recourse.bulks)`

func keys(s *fixture, h *workerProcess) { s.command(h, worker.UseKeys, "") }

// askCancel requests a cancel of a run during its call. A call hangs only for a moment: on a busy
// machine the run may have ended before the request, and another one is tried.
func askCancel(s *fixture, h *workerProcess) {
	s.t.Helper()
	for n := 1; n <= 20; n++ {
		s.submit(h, adjudication(n, "hang,hang,ok", ""))
		const newest = `id = (SELECT id FROM recourse.runs ORDER BY id DESC LIMIT 1)`
		s.until("the run is called", `SELECT state <> 'pending' FROM recourse.runs WHERE `+newest)
		r, err := h.ask(s.ctx(), worker.Command{Do: worker.Cancel, Tenant: "chaos", Run: s.onlyRun(newest)})
		switch {
		case errors.Is(err, errWorkerEnded):
			return
		case err != nil:
			s.t.Fatal(err)
		case r.Error == "":
			s.t.Fatal("the cancel was recorded, and the point not reached")
		}
	}
}

// transitions are all kinds of change that the journal writes, and the notifications and
// calls between them, by the names of their points.
var transitions = map[string]killCase{
	failpoint.Escrow: {drive: submitNamed},
	failpoint.Open:   {drive: submits("ok", "")},
	failpoint.CorrectEscrow: {
		before: func(s *fixture) { // an escrow without a case
			h := s.worker(failpoint.Point(failpoint.JournalAfter, failpoint.Escrow))
			submitNamed(s, h)
			s.awaitKilled(h)
		},
		drive: func(s *fixture, h *workerProcess) {
			a := adjudication(1, "ok", "")
			a.Held.Minor += 5000
			s.submit(h, a)
		},
	},
	string(receipts.Submitted):        {before: letter, drive: submitHigher},
	string(receipts.Superseded):       {before: letter, drive: submitHigher},
	string(receipts.AttemptStarted):   {drive: submits("ok", "")},
	string(receipts.AttemptSucceeded): {drive: submits("ok", "")},
	string(receipts.RetryScheduled):   {drive: submits("retryable,ok", ""), apart: true},
	string(receipts.DeadLettered):     {drive: submits("refused", "")},
	string(receipts.AttemptInterrupted): {
		before: orphanAt(failpoint.Point(failpoint.CallBefore, failpoint.Executor)),
	},
	string(receipts.AnsweredLate): {drive: submits("late", worker.IgnoresCancel), apart: true},
	string(receipts.Reconciled): {
		drive:     submits("late", worker.IgnoresCancel),
		baseDelay: 3 * time.Second, apart: true,
	},
	string(receipts.Contradicted):       {drive: submits("late", worker.Renames), apart: true},
	string(receipts.ConservationBreach): {drive: submits("ok", worker.Misreports), apart: true},
	failpoint.FoldDeltas: { // of what was paid beyond the reservation
		drive:      submits("ok", worker.Misreports),
		settledSQL: `SELECT NOT EXISTS (SELECT FROM recourse.escrow_deltas)`,
	},
	string(receipts.Cancelled): {
		drive: func(s *fixture, h *workerProcess) {
			s.submit(h, adjudication(1, "retryable,ok", ""))
			s.untilRun("scheduled")
			s.command(h, worker.Cancel, s.onlyRun("live"))
		},
		baseDelay: 3 * time.Second,
	},
	failpoint.CancelRequest: {drive: askCancel},
	string(receipts.ManualRetryRequested): {
		before: letter,
		drive:  func(s *fixture, h *workerProcess) { s.command(h, worker.Fork, s.onlyRun("letter = 'open'")) },
	},
	string(receipts.OutOfBandChangeDetected): {before: func(s *fixture) {
		s.notifyUnserved(adjudication(1, "ok", ""))
		s.archive()
	}},
	string(receipts.BreakerOpened): { // its case is there already
		before: func(s *fixture) {
			h := s.worker("")
			openBreakerOf(s, h)
			s.command(h, worker.ReleaseBreaker, "")
			s.terminate(h)
		},
		drive: openBreakerOf,
	},
	failpoint.Breaker: {drive: openBreakerOf},
	string(receipts.BreakerReleased): {
		before: func(s *fixture) { h := s.worker(""); openBreakerOf(s, h); s.terminate(h) },
		drive:  func(s *fixture, h *workerProcess) { s.command(h, worker.ReleaseBreaker, "") },
	},
	failpoint.BreakerProbes: { // the paused work is let through by probes
		before: func(s *fixture) {
			h := s.worker("")
			openAllBreakers(s, h)
			s.submit(h, adjudication(2, "ok", ""), adjudication(3, "ok", ""))
			s.terminate(h)
		},
		drive: func(s *fixture, h *workerProcess) {
			s.commandFor(h, worker.ReleaseBreaker, postadjudication.AllTenants, "")
		},
		apart: true,
	},
	failpoint.BreakerTenantReceipt: {
		before: func(s *fixture) { h := s.worker(""); openAllBreakers(s, h); s.terminate(h) },
		drive:  submits("ok", ""), apart: true,
	},
	string(receipts.PolicyChanged): { // its case is there already
		before: func(s *fixture) { h := s.worker(""); setPolicy(s, h, 4); s.terminate(h) },
		drive:  func(s *fixture, h *workerProcess) { setPolicy(s, h, 5) },
	},
	failpoint.LetterHandler: { // it begins in the commit of the death, or there is no death
		drive: submits("refused", ""), handled: true,
		invariantSQL: `SELECT count(*) = 1 AND bool_and(d.state = 'dead_lettered' AND r.state = 'succeeded' AND r.retry_key = 'dlq:' || d.id)
			FROM recourse.runs r LEFT JOIN recourse.handlers h ON h.run = r.id LEFT JOIN recourse.runs d ON d.id = h.letter WHERE r.family <> 'settlement'`,
	},
	failpoint.Annotations:             {before: letter, drive: annotate(worker.Hold), invariantSQL: heldOnce},
	string(receipts.HoldPlaced):       {before: letter, drive: annotate(worker.Hold), invariantSQL: heldOnce},
	string(receipts.HoldReleased):     {before: placeHold, drive: annotate(worker.ReleaseHold), invariantSQL: heldOnce},
	string(receipts.Marked):           {before: letter, drive: annotate(worker.Mark), invariantSQL: markedOnce},
	string(receipts.Purged):           {before: letter, drive: annotate(worker.Purge), resumes: true, settledSQL: purgedByPlan, invariantSQL: purgedOnce},
	string(receipts.RetentionEnding):  {before: letter, retain: "PT1S", invariantSQL: expiredOnce},
	string(receipts.RetentionExpired): {before: letter, retain: "PT1S", invariantSQL: expiredOnce},
	failpoint.BulkItems:               {before: letter, drive: runBulk(worker.Bulk), settledSQL: bulkOnce},
	failpoint.BulkPlan:                {before: letter, drive: runBulk(worker.Bulk), settledSQL: bulkOnce},
	failpoint.BulkExpire: { // rows of a plan that was never stored completely
		before: func(s *fixture) {
			letter(s)
			s.exec(`INSERT INTO recourse.bulk_counts (bulk_id, ran, word, currency, items, amount) VALUES ('00000000-0000-7000-8000-000000000001', false, '', '', 1, 1)`)
		},
		drive: runBulk(worker.Bulk), settledSQL: bulkOnce,
	},
	failpoint.BulkTransition: {before: letter, drive: runBulk(worker.Bulk), settledSQL: bulkOnce},
	failpoint.BulkItem:       {before: letter, drive: runBulk(worker.Bulk), resumes: true, settledSQL: bulkOnce},
	failpoint.BulkSettled:    {before: lettersOf(4), drive: runBulk(worker.CancelBulk), resumes: true, settledSQL: bulkOnce},
	string(receipts.BulkChanged): { // the register is there already
		before: func(s *fixture) {
			letter(s)
			h := s.worker("")
			runBulk(worker.Bulk)(s, h)
			s.until("a plan is done", `SELECT EXISTS (SELECT FROM recourse.bulks WHERE state = 'done')`)
			s.until("its fork is a dead letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE parent_id IS NOT NULL AND state = 'dead_lettered')`)
			s.terminate(h)
		},
		drive: runBulk(worker.Bulk), settledSQL: bulkOnce,
	},
	failpoint.Rebuild: {before: unlisted, drive: rebuild, again: rebuild, invariantSQL: listed},
	string(receipts.DeadLettersRebuilt): { // the register is there already
		before: func(s *fixture) {
			unlisted(s)
			h := s.worker("")
			rebuild(s, h)
			s.terminate(h)
			s.exec(`DELETE FROM recourse.letters`)
		},
		drive: rebuild, again: rebuild, invariantSQL: listed,
	},
	string(receipts.ReservationFreed): {before: letter, drive: func(s *fixture, h *workerProcess) { s.command(h, worker.Free, "") }, resumes: true, settledSQL: freedOnce, invariantSQL: freedOnce},
	string(receipts.Returned):         {before: paid, drive: returnPayment, resumes: true, settledSQL: returnedOnce, invariantSQL: returnedOnce},
	failpoint.ReturnedPayments:        {before: paid, drive: returnPayment, resumes: true, settledSQL: returnedOnce, invariantSQL: returnedOnce},
	failpoint.ApprovalsRequired:       {drive: func(s *fixture, h *workerProcess) { setPeople(s, h, 1) }},
	string(receipts.PeopleChanged): { // the register is there already
		before: func(s *fixture) { h := s.worker(""); setPeople(s, h, 1); s.terminate(h) },
		drive:  func(s *fixture, h *workerProcess) { setPeople(s, h, 2) },
	},
	failpoint.Rule:            {before: letter, drive: rule(1), settledSQL: replayedOnce, invariantSQL: ruledOnce},
	failpoint.RuleAction:      {before: letter, drive: rule(1), resumes: true, settledSQL: replayedOnce, invariantSQL: replayedOnce},
	string(receipts.Replayed): {before: letter, drive: rule(1), resumes: true, settledSQL: replayedOnce, invariantSQL: replayedOnce},
	string(receipts.RuleChanged): { // the register is there already
		before: func(s *fixture) { h := s.worker(""); rule(1)(s, h); s.terminate(h) },
		drive:  rule(2), invariantSQL: ruledOnce,
	},
	failpoint.Policy: {drive: func(s *fixture, h *workerProcess) { setPolicy(s, h, 4) }},
	failpoint.Key:    {drive: keys},
	failpoint.KeyUse: {drive: keys},
	string(receipts.KeyCreated): { // the register is there already
		before: func(s *fixture) { h := s.worker(""); keys(s, h); s.terminate(h) },
		drive:  keys,
	},
	string(receipts.KeyRevoked): {drive: keys},
	string(receipts.AccessRefused): { // the register is there already
		before: func(s *fixture) { h := s.worker(""); s.command(h, worker.Refuse, ""); s.terminate(h) },
		drive:  func(s *fixture, h *workerProcess) { s.command(h, worker.Refuse, "") },
	},
	failpoint.AccessRefusal: {
		before: letter,
		drive:  func(s *fixture, h *workerProcess) { s.command(h, worker.Refuse, s.onlyRun("letter = 'open'")) },
	},
	failpoint.SubmissionRefusal: {
		before: func(s *fixture) {
			h := s.worker("")
			s.submit(h, adjudication(1, "ok", ""))
			s.awaitNoneLive()
			s.terminate(h)
		},
		drive:        submitHigher,
		invariantSQL: `SELECT count(*) = 1 FROM recourse.receipts WHERE subtype = 'refused'`,
	},
	failpoint.Request:             {drive: func(s *fixture, h *workerProcess) { s.command(h, worker.Request, "") }},
	failpoint.Sequence:            {drive: submits("ok", "")},
	failpoint.Projection:          {drive: submits("refused", "")},
	failpoint.AdvanceNotification: {before: orphanAt(failpoint.Point(failpoint.NotifyBefore, failpoint.Task))},
	failpoint.Install:             {},
	failpoint.Timeline:            {},
	failpoint.Targets:             {},
	failpoint.RegisterSession:     {},
	failpoint.LeaseClaim:          {drive: workJob, again: finishJobs, invariantSQL: jobsDoneOnce},
	failpoint.LeaseExtension:      {drive: workJob, again: finishJobs, invariantSQL: jobsDoneOnce},
	failpoint.LeaseEnd:            {drive: leaveJob, again: finishJobs, invariantSQL: jobsDoneOnce},
	failpoint.UniqueJob:           {drive: enqueueUnique, again: finishUnique, invariantSQL: jobsDoneOnce},
	failpoint.JobQueue:            {drive: workJob, again: func(s *fixture, h *workerProcess) { workJob(s, h); finishJobs(s, h) }, invariantSQL: jobsDoneOnce},
	failpoint.PrunedLetters:       {before: deadJob, apart: true, retain: "PT1S", settledSQL: jobPrunedOnce, invariantSQL: jobPrunedOnce},
	string(receipts.LettersPruned): { // the log is there already
		before: func(s *fixture) {
			deadJob(s)
			h := s.worker("", func(c *worker.Settings) { c.Archive, c.Retain = s.archiveFolder, "PT1S" })
			s.until("a job is pruned", jobPrunedOnce)
			s.until("its round is recorded", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'letters-pruned')`)
			s.terminate(h)
			deadJob(s)
		},
		apart: true, retain: "PT1S", settledSQL: jobPrunedOnce, invariantSQL: jobPrunedOnce,
	},
	string(receipts.Activated): {drive: activateJob, again: finishJobs, invariantSQL: jobsDoneOnce},
	string(receipts.Discarded): {drive: failJob, again: finishJobs},
	failpoint.Webhook:          {before: letter, drive: createWebhook, again: createWebhook, arrives: true, invariantSQL: webhookOnce},
	string(receipts.WebhookChanged): { // the register is there already
		before: webhookOf("refused"), drive: pauseWebhook, again: resumeWebhook, arrives: true, invariantSQL: webhookOnce,
	},
	failpoint.WebhookPosition: {before: webhookOf("retryable,ok"), drive: submitMore, arrives: true, invariantSQL: webhookOnce},
	failpoint.Lookup:          {}, // each round drops letters that are no longer open
	failpoint.Beat:            {drive: submits("ok", "")},
	failpoint.MarkLost:        {before: orphanAt(failpoint.Point(failpoint.CallAfter, failpoint.Executor))},
	failpoint.RemoveSession: {drive: func(s *fixture, h *workerProcess) {
		s.until("the process is known", `SELECT EXISTS (SELECT FROM recourse.sessions)`)
		s.stopWorker(h)
	}, apart: true}, // the session of a predecessor would be taken for that of the process
}

// moments are when the failpoints of a transition in the journal are passed.
var moments = []failpoint.Moment{failpoint.JournalBefore, failpoint.JournalAfter}

// A worker that is killed with SIGKILL just before any transition, and its successor that is killed just
// after it, lose nothing: after another worker has continued, and everything was submitted again, every
// adjudication has a run or an effect, every chain verifies, and the escrow service has
// paid each operation key at most once, with the sums of the receipts.
func TestAKillAtAnyPointOfAnyTransitionLosesNothing(t *testing.T) {
	for what, tr := range transitions {
		killAt(t, what, moments, tr)
	}
	killAt(t, failpoint.Task, []failpoint.Moment{failpoint.NotifyBefore, failpoint.NotifyAfter}, killCase{drive: submits("ok", "")})
	call := []failpoint.Moment{failpoint.CallBefore, failpoint.CallAfter}
	killAt(t, failpoint.Executor, call, killCase{drive: submits("ok", "")})
	killAt(t, failpoint.Delivery, call, killCase{before: webhookOf("retryable,ok"), drive: submitMore, arrives: true, invariantSQL: webhookOnce})
}

// A process that runs a purge itself is killed before it starts the plan, and before it records what it purged,
// and its successor just after: the survivor continues what was started, and purges nothing else.
func TestAKillOfTheProcessThatRunsAPurgeLosesNothing(t *testing.T) {
	for _, what := range []string{failpoint.BulkPlan, failpoint.BulkTransition, failpoint.BulkItem} {
		killAt(t, what, moments, killCase{before: letter, drive: annotate(worker.Purge), resumes: what == failpoint.BulkItem, settledSQL: purgedByPlan, invariantSQL: purgedOnce})
	}
}

// killAt kills one worker at each moment of a change, each the successor of the one before it, and checks
// what the survivor makes of it.
func killAt(t *testing.T, what string, at []failpoint.Moment, tr killCase) {
	if !tr.apart {
		killInTurn(t, what, what, at, tr)
		return
	}
	for _, m := range at {
		killInTurn(t, failpoint.Point(m, what), what, []failpoint.Moment{m}, tr)
	}
}

func killInTurn(t *testing.T, name, what string, at []failpoint.Moment, tr killCase) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		s.archiveFolder = t.TempDir()
		if tr.arrives {
			s.receiver = newReceiver(t)
		}
		if tr.before != nil {
			tr.before(s)
		}
		for n, m := range at {
			h := s.worker(failpoint.Point(m, what), func(c *worker.Settings) {
				c.BaseDelay, c.Handled, c.Archive, c.Retain = max(c.BaseDelay, tr.baseDelay), tr.handled, s.archiveFolder, tr.retain
				c.RemoteKeyLifetime = tr.remoteKeyLifetime
			})
			if tr.drive != nil && (n == 0 || !tr.resumes) {
				tr.drive(s, h)
			}
			s.awaitKilled(h)
		}
		survivor := s.worker("", func(c *worker.Settings) {
			c.Handled, c.Archive, c.Retain, c.RemoteKeyLifetime = tr.handled, s.archiveFolder, tr.retain, tr.remoteKeyLifetime
		})
		s.resubmit(survivor)
		s.release(survivor)
		if tr.again != nil {
			tr.again(s, survivor)
		}
		if tr.settledSQL != "" {
			s.until(tr.settledSQL, tr.settledSQL)
		}
		s.awaitNoneLive()
		if tr.arrives {
			s.awaitEvents()
		}
		s.checkConsistent()
		if tr.invariantSQL != "" {
			s.until(tr.invariantSQL, tr.invariantSQL)
		}
		s.archivedWhatWentBy(s.archiveFolder)
		s.terminate(survivor)
	})
}

// A caller's transaction whose process is killed before the commit leaves nothing. A
// committed one executes although no notification was sent.
func TestAKillInsideACallersTransactionIsAllOrNothing(t *testing.T) {
	for point, committed := range map[string]bool{
		failpoint.Point(failpoint.JournalBefore, failpoint.Open): false,
		failpoint.Point(failpoint.JournalAfter, failpoint.Open):  false,
		failpoint.Point(failpoint.NotifyBefore, failpoint.Task):  true,
		failpoint.Point(failpoint.NotifyAfter, failpoint.Task):   true,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			h := s.worker(point)
			s.submitAs(h, worker.SubmitTx, adjudication(1, "ok", ""))
			s.awaitKilled(h)
			var runs int
			if err := s.db.QueryRow(`SELECT count(*) FROM recourse.runs`).Scan(&runs); err != nil || (runs == 1) != committed {
				t.Fatalf("%d runs after the kill, %v", runs, err)
			}
			survivor := s.worker("")
			s.resubmit(survivor)
			s.awaitNoneLive()
			s.checkConsistent()
			if n := len(s.escrow.Effects()); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// A worker that freezes at a point until it is declared lost, and then wakes, pays
// nothing twice and overwrites nothing that was done meanwhile.
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
			s := newFixture(t)
			sleeper := s.worker("stop=" + point)
			replied := s.submitAsync(sleeper, adjudication(1, "ok", ""))
			s.frozen(sleeper)
			other := s.worker("")
			s.awaitNoneLive()
			if err := sleeper.process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			replied()
			s.submit(sleeper, adjudication(2, "ok", "")) // it works again
			s.awaitNoneLive()
			s.terminate(sleeper)
			s.terminate(other)
			s.checkConsistent()
			if n := len(s.escrow.Effects()); n != 2 {
				t.Errorf("%d effects of two adjudications", n)
			}
		})
	}
}
