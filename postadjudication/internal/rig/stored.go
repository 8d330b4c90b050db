package rig

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Stored counts what is in the database, of all tenants.
type Stored struct {
	t  testing.TB
	db *sql.DB
}

// Runs selects runs. A zero field selects by nothing.
type Runs struct {
	Tenant, Target string
	RetryKey       string
	ID             background.RunID
	State          background.State
	Letter         background.LetterStatus
	Class          background.Class
	Reason         string // of a dead letter
	ErrorType      string
	Spent          int  // attempts of the budget
	Called         bool // only runs that had an attempt
	WithPayload    bool // only runs that have their payload
	Forks          bool // only forks
}

// CountRuns returns the number of runs that f selects.
func (s Stored) CountRuns(f Runs) int {
	s.t.Helper()
	return s.Count(`SELECT count(*) FROM recourse.runs WHERE $1 IN ('', tenant) AND $2 IN ('', target) AND $3 IN ('', state) AND $4 IN ('', letter)
		AND $5 IN ('', class) AND $6 IN ('', reason) AND $7 IN (0, budget_spent) AND (NOT $8 OR attempt_count > 0) AND (NOT $9 OR parent_id IS NOT NULL) AND $10 IN ('', retry_key)
		AND $11 IN ('', error_type) AND ($12 OR id = $13) AND (NOT $14 OR payload IS NOT NULL)`,
		f.Tenant, f.Target, string(f.State), string(f.Letter), string(f.Class), f.Reason, f.Spent, f.Called, f.Forks, f.RetryKey, f.ErrorType, f.ID.IsZero(), f.ID.String(), f.WithPayload)
}

// CountLetters returns the number of dead letters of a status.
func (s Stored) CountLetters(status background.LetterStatus) int {
	s.t.Helper()
	return s.CountRuns(Runs{Letter: status})
}

// CountForks returns the number of forks.
func (s Stored) CountForks() int {
	s.t.Helper()
	return s.CountRuns(Runs{Forks: true})
}

// Cases selects cases. A zero field selects by nothing.
type Cases struct {
	Tenant        string
	SubjectPrefix string
	Kind          string
	Progression   settlement.Status
}

// CountCases returns the number of cases that f selects.
func (s Stored) CountCases(f Cases) int {
	s.t.Helper()
	return s.Count(`SELECT count(*) FROM recourse.cases WHERE $1 IN ('', tenant) AND starts_with(subject, $2) AND $3 IN ('', kind) AND $4 IN ('', progression)`,
		f.Tenant, f.SubjectPrefix, f.Kind, string(f.Progression))
}

// Receipts selects receipts. A zero field selects by nothing.
type Receipts struct {
	Case        receipts.CaseID
	Run         background.RunID
	Subtype     receipts.Subtype
	Actor       string
	ActorPrefix string
	Source      string
	Payload     map[string]any // members that the payload has, with these values
}

// CountReceipts returns the number of receipts that f selects.
func (s Stored) CountReceipts(f Receipts) int {
	s.t.Helper()
	query, args := `SELECT count(*) FROM recourse.receipts WHERE $1 IN ('', subtype) AND $2 IN ('', actor) AND $3 IN ('', source) AND starts_with(actor, $4)`, []any{string(f.Subtype), f.Actor, f.Source, f.ActorPrefix}
	and := func(condition string, arg any) {
		args = append(args, arg)
		query += fmt.Sprintf(" AND "+condition, len(args))
	}
	if f.Case != (receipts.CaseID{}) {
		and(`case_id = $%d`, f.Case.String())
	}
	if f.Run != (background.RunID{}) {
		and(`run_id = $%d`, f.Run.String())
	}
	if len(f.Payload) > 0 {
		members, err := json.Marshal(f.Payload)
		if err != nil {
			s.t.Fatal(err)
		}
		and(`(body::json -> 'payload')::jsonb @> $%d`, string(members))
	}
	return s.Count(query, args...)
}

// EscrowSums is what an escrow has, with the deltas that are not folded yet.
type EscrowSums struct{ Held, Committed, Open int }

// EscrowSums returns the sums of an escrow.
func (s Stored) EscrowSums(tenant, reference string) (e EscrowSums) {
	s.t.Helper()
	const query = `SELECT held, committed, open FROM recourse.escrow_sums WHERE tenant = $1 AND reference = $2`
	if err := s.db.QueryRow(query, tenant, reference).Scan(&e.Held, &e.Committed, &e.Open); err != nil {
		s.t.Fatal(err)
	}
	return e
}

// CountRows returns the number of rows of tables together.
func (s Stored) CountRows(tables ...string) int {
	s.t.Helper()
	return s.Count(`SELECT (SELECT count(*) FROM recourse.` + strings.Join(tables, `) + (SELECT count(*) FROM recourse.`) + `)`)
}

// RowsOfPlan returns how many rows a plan has: its own, those of its items and of their counts.
func (s Stored) RowsOfPlan(id uuid.UUID) int {
	s.t.Helper()
	return s.Count(`SELECT (SELECT count(*) FROM recourse.bulks WHERE id = $1) + (SELECT count(*) FROM recourse.bulk_items WHERE bulk_id = $1)
		+ (SELECT count(*) FROM recourse.bulk_counts WHERE bulk_id = $1)`, id)
}

// Notifications returns how often a run was notified.
func (s Stored) Notifications(run background.RunID) int {
	s.t.Helper()
	return s.Count(`SELECT notification_number FROM recourse.runs WHERE id = $1`, run.String())
}

// TotalNotifications returns how often all runs together were notified.
func (s Stored) TotalNotifications() int {
	s.t.Helper()
	return s.Count(`SELECT sum(notification_number) FROM recourse.runs`)
}

// Head returns the number of the last receipt of a case.
func (s Stored) Head(of receipts.CaseID) int {
	s.t.Helper()
	return s.Count(`SELECT last_seq FROM recourse.cases WHERE id = $1`, of.String())
}

// TimesAsked returns how often the escrow service was asked about the run that it was asked about most.
func (s Stored) TimesAsked() int {
	s.t.Helper()
	return s.Count(`SELECT coalesce(max(asked), 0) FROM recourse.lookups`)
}

// SaidNotExecuted returns of how many runs the escrow service has said that nothing was executed.
func (s Stored) SaidNotExecuted() int {
	s.t.Helper()
	return s.Count(`SELECT count(*) FROM recourse.lookups WHERE absent_at IS NOT NULL`)
}

// TimesAskedAbout returns how often the escrow service was asked about a run, as far as it is remembered.
func (s Stored) TimesAskedAbout(run background.RunID) int {
	s.t.Helper()
	return s.Count(`SELECT coalesce(max(asked), 0) FROM recourse.lookups WHERE run_id = $1`, run.String())
}

// Beat returns the last beat of any session; 0 while there is none.
func (s Stored) Beat() int {
	s.t.Helper()
	return s.Count(`SELECT coalesce(max(beat), 0) FROM recourse.sessions`)
}

// Blocked returns how many connections wait for a lock.
func (s Stored) Blocked() int {
	s.t.Helper()
	return s.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

// Count returns the number that a query returns.
func (s Stored) Count(query string, args ...any) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(query, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// QueryBool returns the answer of a query whose answer is a boolean.
func (s Stored) QueryBool(query string, args ...any) (so bool) {
	s.t.Helper()
	if err := s.db.QueryRow(query, args...).Scan(&so); err != nil {
		s.t.Fatal(err)
	}
	return so
}
