package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
)

func (c *command) dlqFork() *cobra.Command {
	var l onLetter
	var p policyFlags
	var queue string
	cmd := &cobra.Command{
		Use: "fork RUN", Short: "Try an open dead letter again, with a fresh budget", Args: exactly("RUN"),
		Long: `Try an open dead letter again: a new run in the same case, which really executes.
A letter has one fork at most. It is refused while it is unknown whether money moved
and the operation key may be over: reconcile it first. Policy and queue may be changed
for the fork; what the escrow service is sent may not.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withLetter(cmd, &l, args[0], func(ctx context.Context, k clerk) error {
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
	cmd.Flags().StringVar(&queue, "queue", "", "another queue of the family, such as settlement:1")
	return cmd
}
