package dlq

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/policy"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

func fork(sh *shell.Shell) *cobra.Command {
	l, p, m, queue, force := &letterCommand{}, &policy.Flags{}, &batchFlags{}, "", false
	m.queueFlag = "from-queue"
	cmd := &cobra.Command{
		Use: "fork [RUN]", Short: "Try an open dead letter again, with a fresh budget, or many at once", Args: shell.AtMostOne,
		Long: `Try an open dead letter again: a new run in the same case, which really executes.
A letter has one fork at most. It is refused while it is unknown whether money moved
and the operation key may be over: reconcile it first. Policy and queue may be changed
for the fork; what the escrow service is sent may not.

Without RUN all letters are forked that a filter selects (or --all) and that are worth
another try, as one plan: you see it first. A policy is then that of the family's new
runs with what is given here changed; letters of several families need --family.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return forkBatch(sh, cmd, l, p, m, queue, force)
			}
			if err := m.notForOne(cmd); err != nil {
				return err
			}
			return withLetter(sh, cmd, l, args[0], func(ctx context.Context, be backend.Backend) error {
				if err := checkMarks(ctx, be, l.run, force); err != nil {
					return err
				}
				q := postadjudication.ForkRequest{Reason: l.reason, Queue: queue}
				if p.Given(cmd) {
					letter, err := be.Cases.Run(ctx, l.run)
					if err != nil {
						return err
					}
					changed, err := p.Apply(cmd, letter.Policy)
					if err != nil {
						return err
					}
					q.Policy = &changed
				}
				made, err := be.DeadLetters.Fork(ctx, l.run, q)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(made)
				}
				s := sh.Screen()
				s.Text("Run %s tries again what run %s died on.", made.Run, l.run)
				return s.Err()
			})
		},
	}
	l.bind(cmd)
	p.Bind(cmd)
	m.bind(cmd, "min-attempts", "max-attempts") // the latter is of the policy; --filter asks for attempts
	forceFlag(cmd, &force)
	cmd.Flags().StringVar(&queue, "queue", "", "another queue of the family, such as settlement:1")
	return cmd
}

// forkBatch forks the letters that are selected.
func forkBatch(sh *shell.Shell, cmd *cobra.Command, l *letterCommand, p *policy.Flags, m *batchFlags, queue string, force bool) error {
	q, err := m.planRequest(cmd, postadjudication.BulkFork, l.reason)
	if err == nil {
		err = m.excludeIneligible(cmd, &q, force)
	}
	if err != nil {
		return err
	}
	q.Queue = queue
	return m.run(sh, cmd, &l.Flags, q, func(ctx context.Context, be backend.Backend, q *postadjudication.BulkRequest) error {
		if !p.Given(cmd) {
			return nil
		}
		now, err := policyOfForks(ctx, cmd, be, q, p.FirstGiven(cmd))
		if err != nil {
			return err
		}
		changed, err := p.Apply(cmd, now)
		q.Policy = &changed
		return err
	})
}

func forceFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "force", false, "whatever the marks say; no gate that keeps money is opened by it")
}

// checkMarks refuses to try a letter again of which somebody has said that it is not worth
// while, or that a person should look first. What nobody has marked may be tried.
func checkMarks(ctx context.Context, be backend.Backend, run receipts.RunID, force bool) error {
	if force {
		return nil
	}
	seen, err := be.DeadLetters.Inspect(ctx, run)
	if errors.Is(err, postadjudication.ErrNotFound) {
		return nil // the fork says what stands there
	}
	d := seen.Annotations
	if err != nil || d.MarkReason == "" || d.ReprocessEligible && !d.ManualReviewRequired {
		return err
	}
	return shell.WithCode(shell.ExitFailed, fmt.Errorf("run %s is marked: %s (worth another try: %s; to be looked at first: %s); --force tries it all the same",
		run, d.MarkReason, shell.YesNo(d.ReprocessEligible), shell.YesNo(d.ManualReviewRequired)))
}
