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
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

const reconcileHelp = `Record whether the money of an open dead letter moved, either by a lookup at the escrow
service (--lookup) or by a person's finding (--finding):

  executed      with --moved 125.00EUR: settles the case and closes the letter
  not_executed  clears the unknown outcome, so that the letter can be forked

RUN may also be a live run that waits for an attempt with an unknown outcome: "executed"
ends it, and after "not_executed" it can be cancelled. --reference states where the finding
can be checked. --moved has all decimals of the currency, and is refused if the case is in
another currency; --moved-minor 12500 is in minor units of the letter's currency.
While a call may still be in flight, "not_executed" is refused unless --call-outstanding
confirms that the call will not be executed. A finding that contradicts what is on record,
such as "executed" after the escrow service's lookup said "not_executed", is refused unless
you confirm it: at a terminal the command asks, else give --contradicts-record.

"executed" takes two people, unless the tenant is set to one (recourse people): the command
then stores a plan and prints the command for the second person (exit code 5). This also
applies to --lookup on the database, because you choose the escrow service that is asked:
$` + app.EscrowVariable + ` names it. A server looks up at its own escrow service, which takes
one person.

An answer "executed" of the escrow service always counts. "Not executed" counts only while
the service must still know the operation key: on the database give the same --key-lifetime
as recourse serve.

Without RUN, --lookup looks up all letters that a filter (or --all) selects, as one plan;
it is shown for confirmation first. A finding is about one letter.`

func reconcile(sh *shell.Shell) *cobra.Command {
	var l letterCommand
	var m batchFlags
	var finding, reference string
	var moved shell.Sum
	var lookup, outstanding, contradicts bool
	cmd := &cobra.Command{
		Use: "reconcile [RUN]", Short: "Record whether the money of a dead letter moved, or look up many", Args: shell.AtMostOne,
		Long: reconcileHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return lookupBatch(sh, cmd, &l, &m, lookup)
			}
			if err := m.notForOne(cmd); err != nil {
				return err
			}
			if lookup {
				if err := l.lookupOnly(cmd, finding != "" || reference != "" || moved.Given() || outstanding || contradicts); err != nil {
					return err
				}
			}
			sum, err := moved.Read()
			if err := errors.Join(err, checkFinding(lookup, finding, reference)); err != nil {
				return shell.Usage(cmd, err)
			}
			return withLetter(sh, cmd, &l, args[0], func(ctx context.Context, be backend.Backend) (err error) {
				var status casestatus.Case
				if lookup {
					status, err = be.DeadLetters.Lookup(ctx, l.run)
					err = lookupError(err)
				} else {
					status, err = recordFinding(ctx, sh, cmd, be, l.run, deadletter.Finding{
						Reason: l.reason, Class: escrow.Class(finding), Moved: sum.Minor, Currency: sum.Currency, Reference: reference, OtherAmount: m.yes, CallOutstanding: outstanding, ContradictsRecord: contradicts,
					})
				}
				if errors.Is(err, refusal.ErrNoExecutor) && l.Server == "" {
					return shell.WithCode(shell.ExitUsage, errors.New("--lookup needs an escrow service: set $"+app.EscrowVariable+", or use --server"))
				}
				if errors.Is(err, refusal.ErrTargetUnknown) && l.Server == "" {
					return shell.WithCode(shell.ExitUsage, errors.New("the escrow service of this run is unknown: add it to $"+app.TargetsVariable+", as for recourse serve --target, or use --server"))
				}
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(status)
				}
				s := sh.Screen()
				s.Text("Recorded. The case of %s is %s, with %s of unknown outcome.", status.Transaction, status.Progression, shell.Plural(status.UnknownOpen, "attempt"))
				return s.Err()
			})
		},
	}
	l.bind(cmd)
	m.bind(cmd)
	f := cmd.Flags()
	f.BoolVar(&lookup, "lookup", false, "look up the outcome at the escrow service")
	f.StringVar(&finding, "finding", "", "finding to record: executed or not_executed (required without --lookup)")
	moved.Bind(f, "moved", "amount that was moved (with --finding executed)")
	f.BoolVar(&outstanding, "call-outstanding", false, "with --finding not_executed: confirm, although a call may be in flight, that it will not be executed")
	f.BoolVar(&contradicts, "contradicts-record", false, "with --finding: confirm the finding, although what is on record says the opposite")
	f.StringVar(&reference, "reference", "", "where the finding can be checked (required without --lookup)")
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	l.BindEscrowTimes(local)
	l.BindLocal(f, local)
	return cmd
}

// lookupError returns what a lookup that decided nothing was answered, instead of the advice to make one.
func lookupError(err error) error {
	var refused *refusal.RefusedError
	if errors.As(err, &refused) && refused.Gate == refusal.GateReconcileFirst && refused.Because != "" {
		return shell.WithCode(shell.ExitFailed, fmt.Errorf("%s: it is still unknown whether run %s moved money: %s", refused.Gate, refused.Run, refused.Because))
	}
	return err
}

// checkFinding returns an error for a finding that lacks what a lookup does not need.
func checkFinding(lookup bool, finding, reference string) error {
	switch {
	case lookup:
		return nil
	case finding == "":
		return errors.New("--finding is missing: executed or not_executed (or give --lookup)")
	case reference == "":
		return errors.Join(shell.OneOf("--finding", finding, "executed", "not_executed"), errors.New("--reference is missing: where the finding can be checked"))
	}
	return shell.OneOf("--finding", finding, "executed", "not_executed")
}

// lookupOnly returns an error for flags that conflict with --lookup.
func (l *letterCommand) lookupOnly(cmd *cobra.Command, found bool) error {
	switch {
	case found || l.reason != "":
		return shell.Usage(cmd, errors.New("--lookup excludes --finding, --moved, --reference, --call-outstanding, --contradicts-record and --reason"))
	case l.Server == "" && !l.KeyLifetime.Given:
		return shell.Usage(cmd, errors.New(app.KeyLifetimeMissing))
	}
	l.reason = "lookup" // the receipt records the request and the answer
	return nil
}

// recordFinding records a finding, and says before which sum it states. If the amount differs from the amount left to move,
// or the finding contradicts what is on record, it asks for confirmation first: a finding is permanent, and one that is
// wrong pays twice or never.
func recordFinding(ctx context.Context, sh *shell.Shell, cmd *cobra.Command, be backend.Backend, run receipts.RunID, f deadletter.Finding) (casestatus.Case, error) {
	if f.Class == escrow.Executed && f.Moved > 0 {
		if err := addCurrency(ctx, be, run, &f); err != nil {
			return casestatus.Case{}, err
		}
		sh.Note("The finding: " + movedBy(f).String() + " was moved.")
	}
	status, err := be.DeadLetters.Reconcile(ctx, run, f)
	var field *refusal.FieldError
	if errors.As(err, &field) && field.Field == "currency" {
		field.Field = "the currency of --moved"
		return status, err
	}
	if errors.As(err, &field) && field.Field == "other_amount" {
		if err := confirmAmount(ctx, sh, cmd, be, run, f); err != nil {
			return status, err
		}
		f.OtherAmount = true
		status, err = be.DeadLetters.Reconcile(ctx, run, f)
	}
	var refused *refusal.RefusedError
	if !errors.As(err, &refused) || refused.Gate != refusal.GateContradictsRecord {
		return status, err
	}
	question := fmt.Sprintf("The record contradicts this finding: %s. %s will be recorded, permanently.", refused.Because, f.Class)
	if err := confirmFinding(ctx, sh, cmd, question, "--contradicts-record"); err != nil {
		return status, err
	}
	f.ContradictsRecord = true
	return be.DeadLetters.Reconcile(ctx, run, f)
}

// confirmAmount asks whether a finding of another amount than was left to move is to be recorded.
func confirmAmount(ctx context.Context, sh *shell.Shell, cmd *cobra.Command, be backend.Backend, run receipts.RunID, f deadletter.Finding) error {
	question := movedBy(f).String() + " will be recorded as moved, permanently; this is not the adjudicated amount."
	seen, err := be.DeadLetters.Inspect(ctx, run)
	switch amountLeft := seen.Letter.Amount; {
	case err != nil && !errors.Is(err, refusal.ErrNotFound): // the letter may have been purged
		return err
	case amountLeft != nil:
		question = fmt.Sprintf("%s was adjudicated, but %s will be recorded as moved, permanently.", amountLeft, movedBy(f))
	}
	return confirmFinding(ctx, sh, cmd, question, "--yes")
}

// confirmFinding asks whether a finding is to be recorded, or names the flag that says so where nobody can be asked.
func confirmFinding(ctx context.Context, sh *shell.Shell, cmd *cobra.Command, question, flag string) error {
	if sh.NeedTerminal(cmd, false) != nil {
		return shell.Usage(cmd, fmt.Errorf("%s Standard input is not a terminal: add %s to record it", question, flag))
	}
	return sh.Confirm(ctx, question, false)
}

func movedBy(f deadletter.Finding) settlement.Money {
	return settlement.Money{Minor: f.Moved, Currency: f.Currency}
}

// addCurrency adds the currency of the letter to a finding in minor units, so that the sum can be said.
func addCurrency(ctx context.Context, be backend.Backend, run receipts.RunID, f *deadletter.Finding) error {
	if f.Currency != "" {
		return nil
	}
	seen, err := be.DeadLetters.Inspect(ctx, run)
	if err != nil && !errors.Is(err, refusal.ErrNotFound) {
		return err
	}
	if seen.Letter.Amount == nil {
		return shell.WithCode(shell.ExitUsage, errors.New("--moved-minor is for a dead letter, whose currency is known: give --moved with its currency, such as 125.00EUR"))
	}
	f.Currency = seen.Letter.Amount.Currency
	return nil
}

// lookupBatch looks up the selected letters by one plan.
func lookupBatch(sh *shell.Shell, cmd *cobra.Command, l *letterCommand, m *batchFlags, lookup bool) error {
	for _, name := range []string{"finding", "moved", "moved-minor", "reference", "call-outstanding", "contradicts-record"} {
		if cmd.Flags().Changed(name) {
			return shell.Usage(cmd, errors.New("--"+name+" is for one letter: RUN is missing"))
		}
	}
	if !lookup {
		return shell.Usage(cmd, errors.New("RUN is missing (or give --lookup for many letters)"))
	}
	q, err := m.planRequest(cmd, bulk.Reconcile, l.reason)
	if err != nil {
		return err
	}
	return m.run(sh, cmd, &l.Flags, q, nil)
}
