package dlq

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

const reconcileHelp = `Record what became of an open dead letter's money: by asking the escrow service
(--lookup), or by a person's finding. "executed" with what was moved settles the case
and closes the letter; "not_executed" clears what was unknown, so that the letter can
be forked. RUN may also be a run that waits for an attempt while money is unknown:
"executed" ends it, after "not_executed" it can be cancelled. The reference says where
the finding can be checked. While a call may still be on its way, "not_executed" is
refused unless --call-outstanding says that you know that it will not be executed.

"executed" takes two people, unless the tenant takes one (recourse people): then it is
planned, and the answer has the line that somebody else types (exit code 5). So it is
where --lookup beside the database says so: the escrow service is the one that you name.
A server asks its own, and that takes one person.

The escrow service is believed that something was executed at any time, and that nothing
was only while it must still know the key: beside the database say --key-lifetime, as
the workers do.

Without RUN the escrow service is asked (--lookup) about all letters that a filter
selects (or --all), as one plan: you see it first. A finding is about one letter.`

func reconcile(sh *shell.Shell) *cobra.Command {
	var l letterCommand
	var m batchFlags
	var finding, reference string
	var moved int64
	var lookup, outstanding bool
	cmd := &cobra.Command{
		Use: "reconcile [RUN]", Short: "Record what became of an open dead letter's money, or ask for that of many", Args: shell.AtMostOne,
		Long: reconcileHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return lookupBatch(sh, cmd, &l, &m, lookup)
			}
			if err := m.notForOne(cmd); err != nil {
				return err
			}
			if lookup {
				if err := l.lookupOnly(cmd, finding != "" || reference != "" || moved != 0 || outstanding); err != nil {
					return err
				}
			}
			if moved < 0 {
				return shell.Usage(cmd, errors.New("--moved is negative"))
			}
			return withLetter(sh, cmd, &l, args[0], func(ctx context.Context, be backend.Backend) (err error) {
				var status postadjudication.CaseStatus
				if lookup {
					status, err = be.DeadLetters.Lookup(ctx, l.run)
				} else {
					status, err = recordFinding(ctx, sh, cmd, be, l.run, postadjudication.Finding{
						Reason: l.reason, Class: postadjudication.Class(finding), Moved: moved, Reference: reference, OtherAmount: m.yes, CallOutstanding: outstanding,
					})
				}
				if errors.Is(err, postadjudication.ErrNoExecutor) && l.Server == "" {
					return shell.WithCode(shell.ExitUsage, errors.New("no escrow service is named that could be asked: set $"+app.EscrowVariable+", or ask a server with --server"))
				}
				if errors.Is(err, postadjudication.ErrTargetUnknown) && l.Server == "" {
					return shell.WithCode(shell.ExitUsage, errors.New("the escrow service of this run is none of those named: name it in $"+app.TargetsVariable+", as recourse serve --target has it, or ask a server with --server"))
				}
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(status)
				}
				s := sh.Screen()
				s.Text("Recorded. The case of %s is %s; %s of unknown outcome.", status.Transaction, status.Progression, shell.Plural(status.UnknownOpen, "attempt"))
				return s.Err()
			})
		},
	}
	l.bind(cmd)
	m.bind(cmd)
	f := cmd.Flags()
	f.BoolVar(&lookup, "lookup", false, "ask the escrow service")
	f.StringVar(&finding, "finding", "", "executed or not_executed (required without --lookup)")
	f.Int64Var(&moved, "moved", 0, "what was moved, in minor units; with executed")
	f.BoolVar(&outstanding, "call-outstanding", false, "with not_executed: you know that a call that may still be on its way will not be executed")
	f.StringVar(&reference, "reference", "", "where the finding can be checked (required without --lookup)")
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	l.BindEscrowTimes(local)
	l.BindLocal(f, local)
	return cmd
}

// lookupOnly refuses what does not go with a question to the escrow service.
func (l *letterCommand) lookupOnly(cmd *cobra.Command, found bool) error {
	switch {
	case found || l.reason != "":
		return shell.Usage(cmd, errors.New("--lookup asks the escrow service: it excludes --finding, --moved, --reference, --call-outstanding and --reason"))
	case l.Server == "" && !l.KeyLifetime.Given:
		return shell.Usage(cmd, errors.New(app.KeyLifetimeMissing))
	}
	l.reason = "lookup" // the receipt tells what was asked and answered
	return nil
}

// recordFinding records a finding. A person is asked before it is of another amount than
// was left to be moved: it can't be taken back, and more than the escrow has left is a
// breach.
func recordFinding(ctx context.Context, sh *shell.Shell, cmd *cobra.Command, be backend.Backend, run receipts.RunID, f postadjudication.Finding) (postadjudication.CaseStatus, error) {
	status, err := be.DeadLetters.Reconcile(ctx, run, f)
	var field *postadjudication.FieldError
	if !errors.As(err, &field) || field.Field != "other_amount" {
		return status, err
	}
	question := fmt.Sprintf("%d is to be recorded as moved, for good, which is not what was adjudicated.", f.Moved)
	seen, err := be.DeadLetters.Inspect(ctx, run)
	switch amountLeft := seen.Letter.Amount; {
	case err != nil && !errors.Is(err, postadjudication.ErrNotFound): // it may be purged
		return status, err
	case amountLeft != nil:
		question = fmt.Sprintf("%s was adjudicated, and %s is to be recorded as moved, for good.", amountLeft, settlement.Money{Minor: f.Moved, Currency: amountLeft.Currency})
	}
	if sh.NeedTerminal(cmd, false) != nil {
		return status, shell.Usage(cmd, fmt.Errorf("%s Nobody can be asked here: add --yes to record it", question))
	}
	if err := sh.Confirm(ctx, question, false); err != nil {
		return status, err
	}
	f.OtherAmount = true
	return be.DeadLetters.Reconcile(ctx, run, f)
}

// lookupBatch asks the escrow service about the letters that are selected.
func lookupBatch(sh *shell.Shell, cmd *cobra.Command, l *letterCommand, m *batchFlags, lookup bool) error {
	for _, name := range []string{"finding", "moved", "reference", "call-outstanding"} {
		if cmd.Flags().Changed(name) {
			return shell.Usage(cmd, errors.New("--"+name+" is of one letter: RUN is missing"))
		}
	}
	if !lookup {
		return shell.Usage(cmd, errors.New("RUN is missing, or --lookup for many letters"))
	}
	q, err := m.planRequest(cmd, postadjudication.BulkReconcile, l.reason)
	if err != nil {
		return err
	}
	return m.run(sh, cmd, &l.Flags, q, nil)
}
