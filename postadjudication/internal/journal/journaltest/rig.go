package journaltest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// Open opens the journal of a database, and registers Session, which makes all claims of these
// tests.
func Open(t testing.TB, url string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	if err := j.Sessions.Register(context.Background(), background.Session{ID: Session, Worker: "test"}); err != nil {
		t.Fatal(err)
	}
	return j
}

// Session is the session of all claims that Transition makes.
var Session = uuid.New()

// PlainRun returns a pending run of a case.
func PlainRun(caseID receipts.CaseID, tenant string) background.Run {
	id := background.RunID(uuid.Must(uuid.NewV7()))
	return background.Run{
		ID: id, Case: caseID, Tenant: tenant, Family: "plain", RetryKey: id.String(), Queue: "plain:0", Target: "plain", Payload: []byte("{}"),
		State: background.Pending, LastTransition: uuid.New(), DueAt: time.Now().UTC().Truncate(time.Microsecond), NotificationNumber: 1,
	}
}

// Opening returns the change that opens a plain case with a run.
func Opening(r background.Run, drafts ...receipts.Draft) journal.Change {
	return journal.Change{Transition: r.LastTransition, Drafts: drafts, After: &journal.Snapshot{Run: r, Case: journal.Case{
		ID: r.Case, Tenant: r.Tenant, Kind: journal.KindPlain, Subject: "case:" + r.Case.String(), ActiveRun: r.ID,
	}}}
}

// Submitted returns the receipt that opens the case of a run.
func Submitted(r background.Run) receipts.Draft {
	return receipts.Draft{Run: r.ID, Subtype: receipts.Submitted, Actor: "test", At: r.DueAt, Payload: receipts.Payload{Family: r.Family, RetryKey: r.RetryKey}}
}

// Submit submits a run of a new plain case of the tenant acme.
func Submit(t testing.TB, j *journal.Journal) journal.Snapshot {
	t.Helper()
	run := PlainRun(receipts.CaseID(uuid.New()), "acme")
	s, err := j.Submit(context.Background(), journal.Submission{
		Tenant: "acme", Kind: journal.KindPlain, Subject: "case:" + run.Case.String(), Run: run.ID,
		Open: func() (journal.Change, error) { return Opening(run, Submitted(run)), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

// Decide returns the decision of a plain family for a transition.
func Decide(m background.Transition) journal.Decision {
	return func(s *journal.Snapshot) (journal.Change, error) {
		after := s.Run
		if err := m.Apply(&after); err != nil {
			return journal.Change{}, err
		}
		p := receipts.Payload{Attempt: after.Attempt, BudgetSpent: after.BudgetSpent, Recoveries: after.Recoveries,
			OutcomeClass: string(after.Class), UnknownOpen: after.UnknownOpen, NextRetryAt: m.NextRetryAt}
		switch m.Subtype {
		case receipts.DeadLettered:
			p.DeadLetteredAt = m.At
		case receipts.AnsweredLate:
			p.Attempt = m.Run.Attempt
		}
		return journal.Change{Transition: m.ID, Before: s, After: &journal.Snapshot{Case: s.Case, Run: after},
			Drafts: []receipts.Draft{{Run: after.ID, Subtype: m.Subtype, Actor: "test", At: m.At, Payload: p}}}, nil
	}
}

// Transition returns a transition of a run as it was seen, with what its subtype needs.
func Transition(fact receipts.Subtype, seen background.Run) background.Transition {
	m := background.Transition{ID: uuid.New(), Run: seen, Subtype: fact, At: time.Now().UTC().Truncate(time.Microsecond), Token: seen.Token}
	switch fact {
	case receipts.AttemptStarted:
		m.Token, m.Session = uuid.New(), Session
	case receipts.RetryScheduled:
		m.NextRetryAt, m.Charge, m.Result.Class = m.At, background.ChargeAttempt, background.NotExecuted
	case receipts.AttemptInterrupted:
		m.NextRetryAt, m.Charge, m.Result.Class = m.At, background.ChargeRecovery, background.Unknown
	case receipts.DeadLettered:
		m.Charge, m.Result.Class, m.Reason = background.ChargeAttempt, background.NotExecuted, background.ReasonFinal
	case receipts.AttemptSucceeded:
		m.Result.Class = background.Executed
	}
	return m
}
