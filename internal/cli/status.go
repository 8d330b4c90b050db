package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

func statusCommand(sh *shell.Shell) *cobra.Command {
	var o app.Options
	var tenant string
	cmd := &cobra.Command{
		Use: "status RUN|CASE|JOB|TRANSACTION", Short: "Show a case: settlement, runs, attempts", Args: shell.Exactly("RUN, CASE, JOB or TRANSACTION"),
		Long: `Show a case: its settlement, its runs and their attempts. Name the case by its id, by the
id of one of its runs or of its job, or by its transaction receipt id. An argument in the
form of an id is read as one.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := shell.NeedTenant(cmd, tenant); err != nil {
				return err
			}
			service, err := backend.OpenReadOnly(cmd.Context(), sh, o)
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
			return view.Case(sh.Screen(), answer)
		},
	}
	o.BindReadOnly(cmd.Flags())
	shell.TenantFlag(cmd.Flags(), &tenant)
	return cmd
}

// findCase returns the case of the id of a run, a case or a job, or of a transaction receipt id.
func findCase(ctx context.Context, service *postadjudication.Service, tenant, what string) (view.CaseAnswer, error) {
	status, err := caseOf(ctx, service, tenant, what)
	if err != nil {
		return view.CaseAnswer{}, shell.NotFound(err, tenant, what)
	}
	trail, err := allReceipts(ctx, service, tenant, status.Case)
	return view.CaseAnswer{Case: status, Attempts: attemptsOf(trail)}, err
}

func caseOf(ctx context.Context, service *postadjudication.Service, tenant, what string) (casestatus.Case, error) {
	run, err := receipts.ParseRunID(what)
	if err != nil {
		return service.Case(ctx, tenant, what)
	}
	if status, err := service.Status(ctx, tenant, run); !errors.Is(err, refusal.ErrNotFound) {
		if err != nil {
			return casestatus.Case{}, err
		}
		return service.CaseByID(ctx, tenant, status.Case)
	}
	if found, err := service.CaseByID(ctx, tenant, receipts.CaseID(run)); !errors.Is(err, refusal.ErrNotFound) {
		return found, err
	}
	job, err := service.As(tenant, "").Jobs.Find(ctx, what)
	if err != nil {
		return casestatus.Case{}, err
	}
	return service.CaseByID(ctx, tenant, job.Case)
}

const receiptPageSize = 1000

func allReceipts(ctx context.Context, service *postadjudication.Service, tenant string, caseID receipts.CaseID) ([]receipts.Receipt, error) {
	var out []receipts.Receipt
	for {
		page, err := service.Receipts(ctx, tenant, caseID, int64(len(out)), receiptPageSize)
		if err != nil {
			return nil, err
		}
		if out = append(out, page...); len(page) < receiptPageSize {
			return out, nil
		}
	}
}

// attemptsOf returns the attempts that a trail records. It skips unreadable receipts, which
// `receipts verify` reports.
func attemptsOf(trail []receipts.Receipt) []view.Attempt {
	out := []view.Attempt{}
	open := map[receipts.RunID]int{}
	for _, r := range trail {
		p, err := r.Payload()
		if err != nil {
			continue
		}
		switch {
		case r.Subtype == receipts.AttemptStarted:
			open[r.Run] = len(out)
			out = append(out, view.Attempt{Run: r.Run, Number: p.Attempt, Started: r.At})
		case r.Subtype.EndsAttempt():
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
