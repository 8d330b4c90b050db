package main

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/receipts"
)

// remoteAdjudication returns one that remote workers execute.
func remoteAdjudication() postadjudication.Adjudication {
	a := adjudication(1, "ok", "")
	a.Target = escrow.RemotePrefix + remote.PayQueue
	return a
}

// fetchOrder fetches an adjudication. A repeated call asks for the same leases again.
func (s *fixture) fetchOrder(h *workerProcess, length time.Duration) (id string, attempt int) {
	s.t.Helper()
	r, _ := s.askJob(h, worker.Command{Do: worker.FetchJob, Run: remoteWorker, Offset: length, Key: "fetch-1"})
	return r.Run, r.Running
}

// payOrder has the escrow service execute an order, and reports the payment.
func (s *fixture) payOrder(h *workerProcess, id string, attempt int) {
	s.t.Helper()
	var key string
	var request []byte
	if err := s.db.QueryRow(`SELECT encode(o.key, 'hex'), o.request FROM recourse.runs r JOIN recourse.operations o ON o.key = r.operation_key WHERE r.id = $1`, id).Scan(&key, &request); err != nil {
		s.t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(s.ctx(), http.MethodPost, s.escrow.URL()+"/v1/executions", bytes.NewReader(request))
	if err != nil {
		s.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Idempotency-Key", key)
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := a.Body.Close(); err != nil || a.StatusCode >= 300 {
		s.t.Fatalf("the payment was answered with %d, %v", a.StatusCode, err)
	}
	s.askJob(h, worker.Command{Do: worker.PaidJob, RetryKey: id, Run: remoteWorker, Attempts: attempt, Adjudication: remoteAdjudication()})
}

// executeOrder fetches an adjudication, pays it and says so.
func executeOrder(s *fixture, h *workerProcess) {
	if id, attempt := s.fetchOrder(h, time.Minute); id != "" {
		s.payOrder(h, id, attempt)
	}
}

// A server that is killed as it gives an order to a worker, or as the worker answers, makes nobody's money
// unknown: the worker repeats what got no answer, at another server, and holds what it held.
func TestAKillAtAnOrderOfARemoteWorkerLosesNothing(t *testing.T) {
	const paidOnce = `SELECT count(*) = 1 AND bool_and(state = 'succeeded' AND attempt_count = 1 AND class = 'executed') AND NOT EXISTS (SELECT FROM recourse.leases)
		AND (SELECT count(*) FROM recourse.receipts WHERE subtype = 'attempt-started') = 1 FROM recourse.runs`
	for _, at := range []string{failpoint.LeaseClaim, string(receipts.AttemptSucceeded)} {
		killAt(t, at, moments, killCase{
			remoteKeyLifetime: time.Hour, // else the repeated fetch is given no order
			drive: func(s *fixture, h *workerProcess) {
				s.submitAs(h, worker.Submit, remoteAdjudication())
				executeOrder(s, h)
			},
			again: func(s *fixture, h *workerProcess) {
				executeOrder(s, h)
				if n := len(s.escrow.Effects()); n != 1 {
					s.t.Errorf("%d effects", n)
				}
			},
			invariantSQL: paidOnce,
		})
	}
}

// Where nobody states that the payment services recognise operation keys, an order whose server was killed as it
// gave it to a worker is given to nobody again: it may have been paid. A person decides.
func TestAnOrderThatMayHaveBeenGivenIsNotGivenAgain(t *testing.T) {
	killAt(t, failpoint.LeaseClaim, []failpoint.Moment{failpoint.JournalAfter}, killCase{
		drive: func(s *fixture, h *workerProcess) {
			s.submitAs(h, worker.Submit, remoteAdjudication())
			s.fetchOrder(h, time.Second)
		},
		again: func(s *fixture, h *workerProcess) {
			if id, _ := s.fetchOrder(h, time.Second); id != "" {
				s.t.Errorf("order %s is given again", id)
			}
		},
		invariantSQL: unknownOnce,
	})
}

// unknownOnce is true if the outcome of the one order is unknown, after one attempt.
const unknownOnce = `SELECT count(*) = 1 AND bool_and(state = 'dead_lettered' AND letter = 'open' AND class = 'unknown' AND attempt_count = 1 AND reason = 'outcome_unknown')
	AND NOT EXISTS (SELECT FROM recourse.leases) AND (SELECT count(*) FILTER (WHERE subtype = 'attempt-interrupted') = 1 AND count(*) FILTER (WHERE subtype = 'dead-lettered') = 1 FROM recourse.receipts) FROM recourse.runs`

// A server that is killed as it ends the lease of a silent worker leaves the rest to another one: the outcome is
// unknown, once, and a person decides.
func TestAKillAtTheEndOfALeaseOfMoneyIsTakenUp(t *testing.T) {
	for _, at := range []string{failpoint.LeaseEnd, string(receipts.AttemptInterrupted), string(receipts.DeadLettered)} {
		killAt(t, at, moments, killCase{
			drive: func(s *fixture, h *workerProcess) {
				s.submitAs(h, worker.Submit, remoteAdjudication())
				s.fetchOrder(h, 300*time.Millisecond)
			},
			invariantSQL: unknownOnce,
		})
	}
}
