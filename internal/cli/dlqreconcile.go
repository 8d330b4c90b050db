package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
)

func (c *command) dlqReconcile() *cobra.Command {
	var l onLetter
	var finding, reference string
	var moved int64
	var lookup bool
	cmd := &cobra.Command{
		Use: "reconcile RUN", Short: "Record what became of an open dead letter's money", Args: exactly("RUN"),
		Long: `Record what became of an open dead letter's money: by asking the escrow service
(--lookup), or by a person's finding. "executed" with what was moved settles the case
and closes the letter; "not_executed" clears what was unknown, so that the letter can
be forked. The reference says where the finding can be checked.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if lookup && (finding != "" || reference != "" || moved != 0 || l.reason != "") {
				return usage(cmd, errors.New("--lookup asks the escrow service: it excludes --finding, --moved, --reference and --reason"))
			}
			if lookup {
				l.reason = "lookup" // the receipt tells what was asked and answered
			}
			return c.withLetter(cmd, &l, args[0], func(ctx context.Context, k clerk) (err error) {
				var kase postadjudication.CaseStatus
				if lookup {
					kase, err = k.Lookup(ctx, l.run)
				} else {
					kase, err = k.Reconcile(ctx, l.run, postadjudication.Finding{Reason: l.reason, Class: postadjudication.Class(finding), Moved: moved, Reference: reference})
				}
				if errors.Is(err, postadjudication.ErrNoExecutor) && l.server == "" {
					return &exit{exitUsage, errors.New("no escrow service is named that could be asked: set $" + app.EscrowVariable + ", or ask a server with --server")}
				}
				if err != nil {
					return err
				}
				if c.json {
					return c.answer(kase)
				}
				s := screen.New(c.Out)
				s.Text("Recorded. The case of %s is %s; %s of unknown outcome.", kase.Transaction, kase.Progression, plural(kase.UnknownOpen, "attempt"))
				return s.Err()
			})
		},
	}
	l.bind(cmd)
	f := cmd.Flags()
	f.BoolVar(&lookup, "lookup", false, "ask the escrow service")
	f.StringVar(&finding, "finding", "", "executed or not_executed (required without --lookup)")
	f.Int64Var(&moved, "moved", 0, "what was moved, in minor units; with executed")
	f.StringVar(&reference, "reference", "", "where the finding can be checked (required without --lookup)")
	return cmd
}
