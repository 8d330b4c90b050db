package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// attempt is one call of the executor, as its receipts tell it.
type attempt struct {
	Run      receipts.RunID    `json:"run_id"`
	Number   int               `json:"attempt"`
	Started  time.Time         `json:"started_at"`
	Ended    *time.Time        `json:"ended_at,omitempty"`
	EndedBy  receipts.Subtype  `json:"ended_by,omitempty"`
	Class    string            `json:"outcome_class,omitempty"`
	Failure  *receipts.Failure `json:"error,omitempty"`
	Duration time.Duration     `json:"-"`
}

// caseAnswer is what status says of a case, or of the case of a run.
type caseAnswer struct {
	postadjudication.CaseStatus
	Attempts []attempt `json:"attempts"`
}

func statusCommand(sh *shell.Shell) *cobra.Command {
	var o app.Options
	var tenant string
	cmd := &cobra.Command{
		Use: "status RUN|TRANSACTION", Short: "Tell how a case stands: settlement, runs, attempts", Args: shell.Exactly("RUN or TRANSACTION"),
		Long: `Tell how a case stands: its settlement, its runs, their attempts. The case is that
of a run or of a transaction receipt. An argument that reads as a run id is taken
for one.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := shell.NeedTenant(cmd, tenant); err != nil {
				return err
			}
			service, err := openToLook(cmd.Context(), sh, o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			answer, err := findCase(cmd.Context(), service, tenant, args[0])
			if err != nil {
				return err
			}
			if sh.JSON {
				return sh.Answer(answer)
			}
			return showCase(sh.Screen(), answer)
		},
	}
	o.BindLook(cmd.Flags())
	shell.TenantFlag(cmd.Flags(), &tenant)
	return cmd
}

func findCase(ctx context.Context, service *postadjudication.Service, tenant, what string) (caseAnswer, error) {
	transaction := what
	if run, err := receipts.ParseRunID(what); err == nil {
		if transaction, err = transactionOf(ctx, service, tenant, run); err != nil {
			return caseAnswer{}, missing(err, tenant, what)
		}
	}
	status, err := service.Case(ctx, tenant, transaction)
	if err != nil {
		return caseAnswer{}, missing(err, tenant, what)
	}
	trail, err := wholeTrail(ctx, service, tenant, status.Case)
	return caseAnswer{status, attemptsOf(trail)}, err
}

// missing says in a person's words that a tenant has no such thing.
func missing(err error, tenant, what string) error {
	if errors.Is(err, postadjudication.ErrNotFound) {
		return shell.WithCode(shell.ExitFailed, fmt.Errorf("tenant %s has no %s", tenant, what))
	}
	return err
}

// transactionOf finds what a run is about in its case's first receipt.
func transactionOf(ctx context.Context, service *postadjudication.Service, tenant string, run receipts.RunID) (string, error) {
	status, err := service.Status(ctx, tenant, run)
	if err != nil {
		return "", err
	}
	first, err := service.Receipts(ctx, tenant, status.Case, 0, 1)
	if err != nil {
		return "", err
	}
	if len(first) == 0 {
		return "", fmt.Errorf("case %s has no receipts", status.Case)
	}
	p, err := first[0].Payload()
	return p.TransactionReceiptID, err
}

const trailPage = 1000

func wholeTrail(ctx context.Context, service *postadjudication.Service, tenant string, kase receipts.CaseID) ([]receipts.Receipt, error) {
	var out []receipts.Receipt
	for {
		page, err := service.Receipts(ctx, tenant, kase, int64(len(out)), trailPage)
		if err != nil {
			return nil, err
		}
		if out = append(out, page...); len(page) < trailPage {
			return out, nil
		}
	}
}

// attemptsOf reads the attempts off a trail. What can't be read is left out here:
// `receipts verify` is who finds it.
func attemptsOf(trail []receipts.Receipt) []attempt {
	out := []attempt{}
	open := map[receipts.RunID]int{}
	for _, r := range trail {
		p, err := r.Payload()
		if err != nil {
			continue
		}
		switch r.Subtype {
		case receipts.AttemptStarted:
			open[r.Run] = len(out)
			out = append(out, attempt{Run: r.Run, Number: p.Attempt, Started: r.At})
		case receipts.AttemptSucceeded, receipts.RetryScheduled, receipts.AttemptInterrupted, receipts.DeadLettered, receipts.Cancelled:
			i, running := open[r.Run]
			if !running {
				continue
			}
			delete(open, r.Run)
			at := r.At
			out[i].Ended, out[i].EndedBy, out[i].Class, out[i].Duration = &at, r.Subtype, p.AttemptClass, at.Sub(out[i].Started)
			if p.Error != (receipts.Failure{}) {
				out[i].Failure = &p.Error
			}
		}
	}
	return out
}

// callsOut tells of the calls of a run that have not come back.
func callsOut(r postadjudication.Status) string {
	if n := len(r.OutstandingCalls); n > 0 {
		return ", " + shell.Plural(n, "call") + " out"
	}
	return ""
}

// waitsFor tells what keeps a run from being called. A circuit breaker is told of by pausedBy.
func waitsFor(r postadjudication.Status) string {
	if r.WaitsBecause == "" || r.WaitsFor == postadjudication.WaitsForBreaker {
		return ""
	}
	return ": " + r.WaitsBecause
}

func showCase(s *screen.Screen, a caseAnswer) error {
	money := func(minor int64) string { return settlement.Money{Minor: minor, Currency: a.Currency}.String() }
	s.Title("Transaction %s of %s", a.Transaction, a.Tenant)
	rows := [][]string{
		{"case", a.Case.String()}, {"escrow", fmt.Sprintf("%s, holds %s", a.Escrow, money(a.Held))}, {"adjudication", fmt.Sprintf("%s %s, generation %d", a.Adjudication, money(a.Asked), a.Generation)},
		{"settlement", string(a.Progression)}, {"reason", fmt.Sprintf("%s (%s)", a.Reason, a.ReasonCode)},
	}
	if a.Lifecycle != "" {
		rows = append(rows, []string{"dispute", string(a.Lifecycle)})
	}
	rows = append(rows, []string{"money", fmt.Sprintf("reserved %s, released %s, refunded %s", money(a.Reserved), money(a.Released), money(a.Refunded))})
	if a.Excess > 0 {
		rows = append(rows, []string{s.Bad("breach"), money(a.Excess) + " was paid beyond what was adjudicated"})
	}
	if a.Breached > 0 {
		rows = append(rows, []string{s.Bad("escrow"), fmt.Sprintf("committed %s, which was up to %s more than it holds", money(a.Committed), money(a.Breached))})
	}
	if a.UnknownOpen > 0 {
		rows = append(rows, []string{s.Bad("unknown"), shell.Plural(a.UnknownOpen, "attempt") + " of which nobody knows yet whether money moved"})
	}
	s.Table([]screen.Column{{Name: "About"}, {Name: "Now", Wraps: true}}, append(rows, []string{"receipts", strconv.FormatInt(a.Receipts, 10)}))
	s.Title("Runs")
	rows = nil
	for _, r := range a.Runs {
		state := string(r.State)
		if r.ReasonCode != "" {
			state += " (" + r.ReasonCode + ")"
		}
		if r.Letter != "" {
			state += ", letter " + string(r.Letter)
		}
		if r.CancelAsked {
			state += ", asked to stop"
		}
		state += callsOut(r) + pausedBy(r) + waitsFor(r)
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
		rows = append(rows, []string{strconv.Itoa(t.Number), shell.Stamp(t.Started), took, ended, t.Class, failure})
	}
	s.Table([]screen.Column{{Name: "#", Right: true}, {Name: "Started (UTC)"}, {Name: "Took", Right: true}, {Name: "Ended by"}, {Name: "Known"}, {Name: "Failure", Wraps: true}}, rows)
	return s.Err()
}

// pausedBy names the circuit breakers that keep a run from being claimed.
func pausedBy(r postadjudication.Status) (out string) {
	for _, b := range r.PausedBy {
		out += fmt.Sprintf(", paused: the circuit breaker of %s for %s is %s since %s (%s)", b.Target, whose(b.Tenant), stateOf(b), b.Since.UTC().Format(time.RFC3339), b.Reason)
	}
	return out
}
