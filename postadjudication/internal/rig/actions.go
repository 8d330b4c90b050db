package rig

import (
	"context"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// CancelRun cancels a run as user:ada.
func CancelRun(r *Rig, s postadjudication.Submitted) (casestatus.Status, error) {
	return r.As("acme", "user:ada").Cases.Cancel(context.Background(), s.Run, "the parties agreed")
}

// MustKey creates a key as user:root.
func MustKey(r *Rig, tenant string, n postadjudication.NewKey) (string, postadjudication.AccessKey) {
	r.T.Helper()
	token, k, err := r.As(tenant, "user:root").Keys.Create(context.Background(), n)
	if err != nil {
		r.T.Fatal(err)
	}
	return token, k
}

// AppendByHand writes a receipt beyond the head of a case by hand, as the owner of the tables can.
func AppendByHand(r *Rig, id receipts.CaseID) {
	r.T.Helper()
	if _, err := r.DB.Exec(`INSERT INTO recourse.receipts SELECT case_id, seq + 1, run_id, tenant, source, subtype, 'user:mal', at, body, link FROM recourse.receipts
		WHERE case_id = $1 ORDER BY seq DESC LIMIT 1`, id.String()); err != nil {
		r.T.Fatal(err)
	}
}

// CheckAuditDetects tampers with the database, checks that the audit reports the difference,
// and undoes the change.
func CheckAuditDetects(r *Rig, what, tamper, mend, words string) {
	r.T.Helper()
	for _, query := range []string{tamper, mend} {
		if _, err := r.DB.Exec(query); err != nil {
			r.T.Fatalf("%s: %v", what, err)
		}
		a, err := r.Audit(context.Background())
		if err != nil {
			r.T.Fatal(err)
		}
		switch verdict := a.Verdict(audit.InvariantFold); {
		case query == tamper && !strings.Contains(verdict, words):
			r.T.Errorf("%s: %s", what, verdict)
		case query == mend && verdict != "ok":
			r.T.Fatalf("%s, undone: %s", what, verdict)
		}
	}
}

// CheckNoBreach checks, with all deltas, that no escrow has committed more than it holds.
func CheckNoBreach(r *Rig) {
	r.T.Helper()
	if _, err := journaltest.Open(r.T, r.DatabaseURL).Escrows.FoldDeltas(context.Background()); err != nil {
		r.T.Fatal(err)
	}
	if n := r.Count(`SELECT sum(breached) FROM recourse.escrows`); n != 0 {
		r.T.Errorf("breached by %d", n)
	}
}

// PaidFinding states that the bank paid.
var PaidFinding = deadletter.Finding{Reason: "the bank's statement", Class: escrow.Executed, Moved: 1000, Reference: "stmt-7", ContradictsRecord: true}
