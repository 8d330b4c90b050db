package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

func (c *command) dlqFork() *cobra.Command {
	var l onLetter
	var p policyFlags
	var queue string
	var force bool
	cmd := &cobra.Command{
		Use: "fork RUN", Short: "Try an open dead letter again, with a fresh budget", Args: exactly("RUN"),
		Long: `Try an open dead letter again: a new run in the same case, which really executes.
A letter has one fork at most. It is refused while it is unknown whether money moved
and the operation key may be over: reconcile it first. Policy and queue may be changed
for the fork; what the escrow service is sent may not.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withLetter(cmd, &l, args[0], func(ctx context.Context, k clerk) error {
				if err := unmarked(ctx, k, l.run, force); err != nil {
					return err
				}
				q := postadjudication.ForkRequest{Reason: l.reason, Queue: queue}
				if p.given(cmd) {
					letter, err := k.Run(ctx, l.run)
					if err != nil {
						return err
					}
					policy, err := p.over(cmd, letter.Policy)
					if err != nil {
						return err
					}
					q.Policy = &policy
				}
				made, err := k.Fork(ctx, l.run, q)
				if err != nil {
					return err
				}
				if c.json {
					return c.answer(made)
				}
				s := screen.New(c.Out)
				s.Text("Run %s tries again what run %s died on.", made.Run, l.run)
				return s.Err()
			})
		},
	}
	l.bind(cmd)
	p.bind(cmd)
	forceFlag(cmd, &force)
	cmd.Flags().StringVar(&queue, "queue", "", "another queue of the family, such as settlement:1")
	return cmd
}

func forceFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "force", false, "whatever the marks say; no gate that keeps money is opened by it")
}

// unmarked refuses to try a letter again of which somebody has said that it is not worth
// while, or that a person should look first. What nobody has marked may be tried.
func unmarked(ctx context.Context, k clerk, run receipts.RunID, force bool) error {
	if force {
		return nil
	}
	seen, err := k.Inspect(ctx, run)
	if errors.Is(err, postadjudication.ErrNotFound) {
		return nil // the fork says what stands there
	}
	d := seen.Desk
	if err != nil || d.MarkReason == "" || d.ReprocessEligible && !d.ManualReviewRequired {
		return err
	}
	return &exit{exitFailed, fmt.Errorf("run %s is marked: %s (worth another try: %s; to be looked at first: %s); --force tries it all the same",
		run, d.MarkReason, yesNo(d.ReprocessEligible), yesNo(d.ManualReviewRequired))}
}
