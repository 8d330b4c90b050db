package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/internal/client"
	"github.com/recourse-dev/recourse/receipts"
)

func statusCommand(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "status RUN|CASE|JOB|TRANSACTION", Short: "Show a case: settlement, runs, attempts", Args: shell.Exactly("RUN, CASE, JOB or TRANSACTION"),
		Long: `Show a case: its settlement, its runs and their attempts. Name the case by its id, by the
id of one of its runs or of its job, by its transaction receipt id, or by the end of either,
of 6 characters at least: if it is the end of several, they are listed, and the exit code
is 2. An argument in the form of an id is read as one first. With --server a job is named by its run or its case,
and a key that may not read receipts sees no attempts.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				answer, err := findCase(ctx, sh, be.Cases, args[0])
				if err != nil {
					return o.NotFound(err, args[0])
				}
				if sh.JSON {
					return sh.Answer(answer)
				}
				return view.Case(sh.Screen(), answer)
			})
		},
	}
	o.Bind(cmd.Flags())
	return cmd
}

// findCase returns the case of the id of a run, a case or a job, or of a transaction receipt id.
func findCase(ctx context.Context, sh *shell.Shell, cases backend.Cases, what string) (view.CaseAnswer, error) {
	status, err := backend.FindCase(ctx, cases, what)
	if err != nil {
		return view.CaseAnswer{}, err
	}
	trail, err := allReceipts(ctx, cases, status.Case)
	var refused *client.ProblemError
	if errors.As(err, &refused) && refused.Code == "role_missing" {
		sh.Note("The attempts are left out: the access key may not read receipts.")
		err = nil
	}
	return view.CaseAnswer{Case: status, Attempts: attemptsOf(trail)}, err
}

const receiptPageSize = 1000

func allReceipts(ctx context.Context, cases backend.Cases, caseID receipts.CaseID) (out []receipts.Receipt, err error) {
	for after, more := int64(0), true; more; {
		var page []receipts.Receipt
		if page, more, err = cases.Receipts(ctx, caseID, after, receiptPageSize); err != nil {
			return nil, err
		}
		if out = append(out, page...); len(page) == 0 {
			return out, nil
		}
		after = page[len(page)-1].Seq
	}
	return out, nil
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
