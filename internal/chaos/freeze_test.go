package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// frozenAt are the points from the claim to the last byte of its call, with the number of
// connections of the process to the escrow service there.
var frozenAt = []struct {
	point   string
	state   string // of the run
	dialled int
}{
	{failpoint.Point(failpoint.JournalBefore, string(receipts.AttemptStarted)), "pending", 0},
	{failpoint.Point(failpoint.JournalAfter, string(receipts.AttemptStarted)), "running", 0},
	{failpoint.Point(failpoint.CallBefore, failpoint.Executor), "running", 0},
	{failpoint.Point(failpoint.CallLastByte, failpoint.Executor), "running", 1},
}

// A worker freezes between its claim and the last byte of its call. Meanwhile its run
// dies elsewhere, a person correctly finds that nothing was executed, and the opposite is
// decided and paid. Then it wakes, and sends nothing. The keys never expire, and the escrow
// holds more than both payments, so that only the claim's age can stop the second one.
//
// 200 freezes: go run ./cmd/sandbox -durable=false go test ./internal/chaos -run TestAThawedWorkerPaysNothing -count 50 -timeout 1h
func TestAThawedWorkerPaysNothingWhenTheOppositeWasPaid(t *testing.T) {
	for _, at := range frozenAt {
		t.Run(at.point, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			way, err := newProxy(strings.TrimPrefix(s.escrow.URL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = way.close() })
			forever := func(c *worker.Settings) { c.KeyLifetime = escrow.Forever }
			sleeper := s.worker("stop="+at.point, forever, func(c *worker.Settings) { c.EscrowURL = "http://" + way.addr() })
			a := adjudication(1, "refused,ok", "")
			a.Held.Minor = 5 * a.Amount.Minor
			replied := s.submitAsync(sleeper, a)
			s.frozen(sleeper)
			run := s.onlyRun("state = '" + at.state + "'")
			s.untilTrue("the worker froze where it claims", func() bool { return s.escrow.Totals().Calls == 0 && way.connections() == at.dialled })
			other := s.worker("", forever)
			s.refundInstead(other, run, a)
			if err := sleeper.process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			replied()
			s.terminate(other)
			s.submit(sleeper, adjudication(2, "ok", "")) // it works again, alone
			s.until("settled", `SELECT EXISTS (SELECT FROM recourse.cases WHERE subject = 'txr_2' AND progression = 'settled')`)
			s.terminate(sleeper)
			if calls := s.escrow.Totals().Calls; calls != 3 {
				t.Errorf("%d calls of a release elsewhere, its refund and another release", calls)
			}
			s.onlyRefunded(a)
			s.checkConsistent()
		})
	}
}

// connections returns the number of open connections of a proxy.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// untilTrue waits for a condition that is not in the database.
func (s *fixture) untilTrue(what string, ok func() bool) {
	s.t.Helper()
	poll.Within(s.t, s.limit, what, ok)
}

// refundInstead lets the run of an adjudication die, records that it was not executed, and
// has the opposite paid.
func (s *fixture) refundInstead(h *workerProcess, run string, a postadjudication.Adjudication) {
	s.t.Helper()
	s.until("the release died elsewhere", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND letter = 'open')`, run)
	id, err := receipts.ParseRunID(run)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.service.As(a.Tenant, "user:ada").DeadLetters.Reconcile(s.ctx(), id, deadletter.Finding{
		Reason: "the bank's statement: nothing was moved", Class: escrow.NotExecuted, Reference: "stmt-7", CallOutstanding: true,
	}); err != nil {
		s.t.Fatal(err)
	}
	b := a
	b.Outcome, b.Generation, b.AdjudicationID, b.Payload = settlement.Refund, 2, a.AdjudicationID+"b", []byte(`{"simulate":"ok"}`)
	s.submit(h, b)
	s.until("refunded", `SELECT EXISTS (SELECT FROM recourse.cases WHERE subject = $1 AND progression = 'refunded')`, a.TransactionReceiptID)
}

// onlyRefunded checks the escrow service's own ledger.
func (s *fixture) onlyRefunded(a postadjudication.Adjudication) {
	s.t.Helper()
	released, refunded := 0, 0
	for _, e := range s.escrow.Effects() {
		switch {
		case e.EscrowReference != a.EscrowReference:
		case e.Outcome == settlement.Refund:
			refunded++
		default:
			released++
		}
	}
	if released != 0 || refunded != 1 {
		s.t.Errorf("paid both ways: %d releases, %d refunds", released, refunded)
	}
}

// Two faults of one worker end at once, and each kills it.
func TestAKilledWorkerCanBeKilledAgain(t *testing.T) {
	s := newFixture(t)
	h := s.worker("")
	for range 2 {
		if err := h.kill(); err != nil {
			t.Fatal(err)
		}
	}
}
