package main

import (
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// setPolicy sets the policy of the tenant's settlements.
func setPolicy(s *fixture, h *workerProcess, attempts int) {
	s.t.Helper()
	r, err := h.ask(s.ctx(), worker.Command{Do: worker.SetPolicy, Tenant: "chaos", Attempts: attempts})
	if !errors.Is(err, errWorkerEnded) && (err != nil || r.Error != "") {
		s.t.Fatalf("tune: %v %s", err, r.Error)
	}
}

// setReferences sets the tenant's policy of references: KIDs of a length.
func setReferences(length int) func(*fixture, *workerProcess) {
	return func(s *fixture, h *workerProcess) {
		s.t.Helper()
		r, err := h.ask(s.ctx(), worker.Command{Do: worker.SetReferences, Tenant: "chaos", Attempts: length})
		if !errors.Is(err, errWorkerEnded) && (err != nil || r.Error != "") {
			s.t.Fatalf("set references: %v %s", err, r.Error)
		}
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

// A process is killed before it commits a policy of references, and its successor just after: who asks again gets the one
// version that is there.
func TestAKillAtTheCommitOfAPolicyOfReferencesWritesItOnce(t *testing.T) {
	killAt(t, failpoint.OperationLog, moments, killCase{drive: setReferences(12), again: setReferences(12), invariantSQL: `SELECT count(*) = 1 FROM recourse.receipts WHERE subtype = 'references-changed'`})
}
