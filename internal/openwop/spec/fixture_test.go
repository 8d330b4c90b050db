package spec_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/receipts"
)

var (
	caseA = receipts.CaseID(uuid.MustParse("01934b2e-7c00-7abc-8def-0123456789ab"))
	runA  = receipts.RunID(uuid.MustParse("01934b2e-7c00-7000-8000-00000000000a"))
	runB  = receipts.RunID(uuid.MustParse("01934b2e-7c00-7000-8000-00000000000b"))
	began = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	task  = spec.Workflow{ID: "chores", NodeType: "recourse.task"}
)

// chain returns receipts of a case, a second apart.
func chain(t testing.TB, drafts ...receipts.Draft) []receipts.Receipt {
	t.Helper()
	for i := range drafts {
		if drafts[i].Actor == "" {
			drafts[i].Actor = "worker:1"
		}
		drafts[i].At = began.Add(time.Duration(i) * time.Second)
	}
	out, _, err := receipts.Chain(caseA, "acme", receipts.Genesis(caseA), drafts...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func draft(run receipts.RunID, s receipts.Subtype, p receipts.Payload) receipts.Draft {
	return receipts.Draft{Run: run, Subtype: s, Payload: p}
}

// logOf returns the log of runA after some receipts.
func logOf(t testing.TB, rs []receipts.Receipt) *spec.Log {
	t.Helper()
	l := &spec.Log{Workflow: task, Run: runA}
	if err := l.Add(rs); err != nil {
		t.Fatal(err)
	}
	return l
}
