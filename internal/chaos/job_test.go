package main

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

const (
	theJob       = "01934b2e-7c00-7000-8000-000000000001"
	remoteWorker = "remote-1"
)

// jobsDoneOnce: every job succeeded, by one attempt that says so, and nothing is leased.
const jobsDoneOnce = `SELECT bool_and(state = 'succeeded') AND NOT EXISTS (SELECT FROM recourse.leases)
	AND (SELECT bool_and(n = 1) FROM (SELECT count(*) AS n FROM recourse.receipts x JOIN recourse.runs r ON r.id = x.run_id WHERE r.family = 'ojs' AND x.subtype = 'attempt-succeeded' GROUP BY x.run_id) d)
	FROM recourse.runs WHERE family = 'ojs'`

// askJob sends a worker a command about jobs, during which it may end.
func (s *fixture) askJob(h *workerProcess, c worker.Command) (worker.Reply, bool) {
	s.t.Helper()
	r, err := h.ask(s.ctx(), c)
	if errors.Is(err, errWorkerEnded) {
		return r, false
	}
	if err != nil || r.Error != "" {
		s.t.Fatalf("%s: %v %s", c.Do, err, r.Error)
	}
	return r, true
}

// fetchJob fetches a job under a lease; empty if none is due, or the worker ended.
func (s *fixture) fetchJob(h *workerProcess, length time.Duration) (id string, attempt int) {
	s.t.Helper()
	r, _ := s.askJob(h, worker.Command{Do: worker.FetchJob, Run: remoteWorker, Offset: length})
	return r.Run, r.Running
}

// workJob enqueues a job, fetches it, sends a heartbeat and acknowledges it.
func workJob(s *fixture, h *workerProcess) {
	s.askJob(h, worker.Command{Do: worker.EnqueueJob, RetryKey: theJob, Attempts: 5})
	s.awaitFetchable()
	if id, attempt := s.fetchJob(h, time.Second); id != "" {
		s.askJob(h, worker.Command{Do: worker.BeatJob, RetryKey: id, Run: remoteWorker})
		s.askJob(h, worker.Command{Do: worker.AckJob, RetryKey: id, Run: remoteWorker, Attempts: attempt})
	}
}

// awaitFetchable waits until a job can be fetched, or none is left.
func (s *fixture) awaitFetchable() {
	s.t.Helper()
	s.until("a job can be fetched, or none is left", `SELECT NOT EXISTS (SELECT FROM recourse.runs WHERE family = 'ojs' AND live) OR EXISTS (SELECT FROM recourse.runs WHERE fetchable AND due_at <= now())`)
}

// leaveJob fetches a job and says nothing more: its lease ends.
func leaveJob(s *fixture, h *workerProcess) {
	s.askJob(h, worker.Command{Do: worker.EnqueueJob, RetryKey: theJob, Attempts: 5})
	s.fetchJob(h, 300*time.Millisecond)
}

func enqueueUnique(s *fixture, h *workerProcess) {
	s.askJob(h, worker.Command{Do: worker.UniqueJob, RetryKey: theJob, Attempts: 5})
}

// finishUnique enqueues the same again: it exists, or it does now.
func finishUnique(s *fixture, h *workerProcess) {
	enqueueUnique(s, h)
	finishJobs(s, h)
}

func activateJob(s *fixture, h *workerProcess) {
	s.askJob(h, worker.Command{Do: worker.PendingJob, RetryKey: theJob, Attempts: 5})
	s.askJob(h, worker.Command{Do: worker.ActivateJob, RetryKey: theJob})
}

// failJob lets the only attempt of a job fail: it is discarded.
func failJob(s *fixture, h *workerProcess) {
	s.askJob(h, worker.Command{Do: worker.EnqueueJob, RetryKey: theJob, Attempts: 1})
	if id, attempt := s.fetchJob(h, time.Second); id != "" {
		s.askJob(h, worker.Command{Do: worker.NackJob, RetryKey: id, Run: remoteWorker, Attempts: attempt})
	}
}

// deadJob leaves a job that is an open dead letter, and no worker.
func deadJob(s *fixture) {
	s.t.Helper()
	h := s.worker("")
	id := uuid.Must(uuid.NewV7()).String()
	s.askJob(h, worker.Command{Do: worker.EnqueueJob, RetryKey: id, Attempts: 5})
	_, attempt := s.fetchJob(h, time.Minute)
	s.askJob(h, worker.Command{Do: worker.DieJob, RetryKey: id, Run: remoteWorker, Attempts: attempt})
	s.until("the job is a dead letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE retry_key = '`+id+`' AND state = 'dead_lettered')`)
	s.terminate(h)
}

// jobPrunedOnce: no job is an open dead letter, each was pruned once, and no round was recorded that pruned none.
const jobPrunedOnce = `SELECT (SELECT bool_and(letter = 'purged' AND payload IS NULL) FROM recourse.runs WHERE family = 'ojs')
	AND (SELECT count(*) FROM recourse.receipts WHERE subtype = 'retention-expired') = (SELECT count(*) FROM recourse.runs WHERE family = 'ojs')
	AND (SELECT count(*) FROM recourse.receipts WHERE subtype = 'letters-pruned') <= (SELECT count(*) FROM recourse.runs WHERE family = 'ojs')`

// A process that is killed as it retries a dead letter made one retry, or none, and the caller may ask again.
func TestAKillAtARetryOfAJobMakesOneRetry(t *testing.T) {
	const retriedOnce = `SELECT count(*) FILTER (WHERE parent_id IS NOT NULL AND state = 'succeeded') = 1 AND count(*) = 2 FROM recourse.runs WHERE family = 'ojs'`
	killAt(t, failpoint.UniqueJob, moments, killCase{before: deadJob, drive: retryJobs, again: func(s *fixture, h *workerProcess) {
		retryJobs(s, h)
		finishJobs(s, h)
	}, invariantSQL: retriedOnce})
}

// retryJobs retries the job, whatever its state.
func retryJobs(s *fixture, h *workerProcess) {
	s.t.Helper()
	var id string
	if err := s.db.QueryRow(`SELECT retry_key FROM recourse.runs WHERE family = 'ojs' LIMIT 1`).Scan(&id); err != nil {
		s.t.Fatal(err)
	}
	s.askJob(h, worker.Command{Do: worker.RetryJob, RetryKey: id})
}

// finishJobs does all jobs that are left, once their leases have ended.
func finishJobs(s *fixture, h *workerProcess) {
	s.t.Helper()
	s.askJob(h, worker.Command{Do: worker.ActivateJob, RetryKey: theJob})
	for deadline := time.Now().Add(s.limit); time.Now().Before(deadline); {
		s.awaitFetchable()
		if id, attempt := s.fetchJob(h, time.Minute); id != "" {
			s.askJob(h, worker.Command{Do: worker.AckJob, RetryKey: id, Run: remoteWorker, Attempts: attempt})
			continue
		}
		var live bool
		if err := s.db.QueryRow(`SELECT EXISTS (SELECT FROM recourse.runs WHERE family = 'ojs' AND live)`).Scan(&live); err != nil {
			s.t.Fatal(err)
		}
		if !live {
			return
		}
	}
	s.t.Fatal("jobs are left")
}

// A process that is killed while it answers loses no answer that it gave, and gives no job twice at once.
// The worker repeats what got no answer.
func TestAKillAtAnAnswerOfAWorkerLosesNothing(t *testing.T) {
	for _, subtype := range []receipts.Subtype{receipts.AttemptSucceeded, receipts.RetryScheduled, receipts.Cancelled} {
		killAt(t, string(subtype), moments, killCase{drive: func(s *fixture, h *workerProcess) { answerAs(s, h, subtype) }, again: finishJobs})
	}
}

// answerAs works on a job so that a receipt of the subtype is written.
func answerAs(s *fixture, h *workerProcess, subtype receipts.Subtype) {
	s.askJob(h, worker.Command{Do: worker.EnqueueJob, RetryKey: theJob, Attempts: 5})
	s.awaitFetchable()
	id, attempt := s.fetchJob(h, time.Second)
	do := map[receipts.Subtype]string{receipts.AttemptSucceeded: worker.AckJob, receipts.RetryScheduled: worker.NackJob, receipts.Cancelled: worker.CancelJob}[subtype]
	s.askJob(h, worker.Command{Do: do, RetryKey: id, Run: remoteWorker, Attempts: attempt})
}
