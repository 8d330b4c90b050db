package view

import (
	"fmt"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Attempt is one call of the executor, read from its receipts.
type Attempt struct {
	Run      receipts.RunID    `json:"run_id"`
	Number   int               `json:"attempt"`
	Started  time.Time         `json:"started_at"`
	Ended    *time.Time        `json:"ended_at,omitempty"`
	EndedBy  receipts.Subtype  `json:"ended_by,omitempty"`
	Class    string            `json:"outcome_class,omitempty"`
	Failure  *receipts.Failure `json:"error,omitempty"`
	Duration time.Duration     `json:"-"`
}

// CaseAnswer is the JSON result of status.
type CaseAnswer struct {
	casestatus.Case
	Attempts []Attempt `json:"attempts"`
}

// Case writes a case: settlement, runs, attempts.
func Case(s *screen.Screen, a CaseAnswer) error {
	money := func(minor int64) string { return settlement.Money{Minor: minor, Currency: a.Currency}.String() }
	if a.Escrow == "" && a.Currency == "" { // a job, or another task that moves no money
		s.Title("%s of %s", a.Transaction, a.Tenant)
		s.Table([]screen.Column{{Name: "About"}, {Name: "Now", Wraps: true}}, [][]string{{"case", a.Case.Case.String()}, {"receipts", strconv.FormatInt(a.Receipts, 10)}})
		return runsOfCase(s, a)
	}
	s.Title("Transaction %s of %s", a.Transaction, a.Tenant)
	rows := [][]string{
		{"case", a.Case.Case.String()}, {"escrow", fmt.Sprintf("%s, holds %s", a.Escrow, money(a.Held))}, {"adjudication", fmt.Sprintf("%s %s, generation %d", a.Outcome, money(a.Asked), a.Generation)},
		{"settlement", string(a.Progression)}, {"reason", fmt.Sprintf("%s (%s)", a.Reason, a.ReasonCode)},
	}
	if a.Lifecycle != "" {
		rows = append(rows, []string{"dispute", string(a.Lifecycle)})
	}
	rows = append(rows, []string{"money", fmt.Sprintf("reserved %s, released %s, refunded %s%s", money(a.Reserved), money(a.Released), money(a.Refunded), Returned(settlement.SumOf(a.Returned), a.Currency))})
	if a.Excess > 0 {
		rows = append(rows, []string{s.Bad("breach"), money(a.Excess) + " was paid beyond what was adjudicated"})
	}
	if a.Contradictions > 0 {
		rows = append(rows, []string{s.Bad("contradicted"), shell.Plural(a.Contradictions, "answer") + " or finding about a payment states less than is on record, or another reference: see its receipts, and find out which is right"})
	}
	if a.Breached > 0 {
		rows = append(rows, []string{s.Bad("escrow"), fmt.Sprintf("committed %s, which was up to %s more than it holds", money(a.Committed), money(a.Breached))})
	}
	if a.UnknownOpen > 0 {
		rows = append(rows, []string{s.Bad("unknown"), shell.Plural(a.UnknownOpen, "attempt") + " for which it is unknown whether money moved"})
	}
	s.Table([]screen.Column{{Name: "About"}, {Name: "Now", Wraps: true}}, append(rows, []string{"receipts", strconv.FormatInt(a.Receipts, 10)}))
	return runsOfCase(s, a)
}

// Returned returns what came back of the sums before it, for people; empty if nothing did.
func Returned(sum settlement.Sum, currency string) string {
	if sum.Sign() == 0 {
		return ""
	}
	return ", of which " + sum.In(currency) + " came back"
}

// runsOfCase writes the runs of a case, and their attempts.
func runsOfCase(s *screen.Screen, a CaseAnswer) error {
	s.Title("Runs")
	var rows [][]string
	for _, r := range a.Runs {
		state := string(r.State)
		if r.ReasonCode != "" {
			state += " (" + r.ReasonCode + ")"
		}
		if r.Letter != "" {
			state += ", letter " + string(r.Letter)
		}
		if r.CancelRequested {
			state += ", cancel requested"
		}
		state += outstandingCalls(r) + pausedBy(r) + waitingText(r)
		if n := len(r.Parents); n > 0 {
			state += ", fork of " + r.Parents[n-1].String()
		}
		if !r.Handler.IsZero() {
			state += ", handled by run " + r.Handler.String()
		}
		rows = append(rows, []string{r.Run.String(), state, strconv.Itoa(r.Attempts), string(r.Class)})
	}
	s.Table([]screen.Column{{Name: "Run"}, {Name: "State", Wraps: true}, {Name: "Attempts", Right: true}, {Name: "Known"}}, rows)
	if len(a.Attempts) == 0 {
		return s.Err()
	}
	s.Title("Attempts")
	rows = nil
	for _, t := range a.Attempts {
		ended, took := "running", ""
		if t.Ended != nil {
			ended, took = string(t.EndedBy), t.Duration.Round(100*time.Microsecond).String()
		}
		failure := ""
		if t.Failure != nil {
			failure = t.Failure.Type
		}
		rows = append(rows, []string{strconv.Itoa(t.Number), shell.Timestamp(t.Started), took, ended, t.Class, failure})
	}
	s.Table([]screen.Column{{Name: "#", Right: true}, {Name: "Started (UTC)"}, {Name: "Took", Right: true}, {Name: "Ended by"}, {Name: "Known"}, {Name: "Failure", Wraps: true}}, rows)
	return s.Err()
}

// outstandingCalls returns how many calls of a run have not returned.
func outstandingCalls(r casestatus.Status) string {
	if n := len(r.OutstandingCalls); n > 0 {
		return ", " + shell.Plural(n, "call") + " outstanding"
	}
	return ""
}

// waitingText returns why a run waits. pausedBy returns the circuit breakers.
func waitingText(r casestatus.Status) string {
	if r.WaitsBecause == "" || r.WaitsFor == casestatus.WaitsForBreaker {
		return ""
	}
	return ": " + r.WaitsBecause
}

// pausedBy returns the circuit breakers that pause a run.
func pausedBy(r casestatus.Status) (out string) {
	for _, b := range r.PausedBy {
		out += fmt.Sprintf(", paused: the circuit breaker of %s for %s is %s since %s (%s)", b.Target, BreakerTenant(b.Tenant), BreakerState(b), b.Since.UTC().Format(time.RFC3339), b.Reason)
	}
	return out
}
