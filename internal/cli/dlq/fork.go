package dlq

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/policy"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

func fork(sh *shell.Shell) *cobra.Command {
	l, p, m, queue, force := &letterCommand{}, &policy.Flags{}, &batchFlags{}, "", false
	m.queueFlag = "from-queue"
	cmd := &cobra.Command{
		Use: "fork [RUN]", Short: "Retry one or many open dead letters by new runs", Args: shell.AtMostOne,
		Long: `Retry an open dead letter by a fork: a new run in the same case, with a new retry budget,
that calls the escrow service. A letter has at most one fork. A fork is refused while it is
unknown whether money moved and the operation key may have expired: reconcile first. A fork
may have another policy and queue. Its request to the escrow service cannot be changed.

Without RUN one plan forks all letters that a filter (or --all) selects, as "bulk plan fork"
does; it is shown for confirmation first. Policy flags then change the policy for new runs
of the family; letters of several families need --family.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && force:
				return shell.Usage(cmd, errors.New("--force needs RUN: a plan of many letters does not heed their marks"))
			case len(args) == 0:
				return forkBatch(sh, cmd, l, p, m, queue)
			}
			if err := m.notForOne(cmd); err != nil {
				return err
			}
			return withLetter(sh, cmd, l, args[0], func(ctx context.Context, be backend.Backend) error {
				if err := checkMarks(ctx, be, l.run, force); err != nil {
					return err
				}
				q := deadletter.Fork{Reason: l.reason, Queue: queue}
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
					return newestInstead(ctx, be, err)
				}
				if sh.JSON {
					return sh.Answer(made)
				}
				s := sh.Screen()
				s.Text("Run %s was created as the fork of run %s.", made.Run, l.run)
				return s.Err()
			})
		},
	}
	l.bind(cmd)
	p.Bind(cmd)
	m.bind(cmd, "min-attempts", "max-attempts") // --max-attempts is a policy flag here; --filter can select by attempts
	cmd.Flags().BoolVar(&force, "force", false, "with RUN: ignore the marks of the letter; does not override the checks that protect money")
	cmd.Flags().StringVar(&queue, "queue", "", "queue of the fork: another queue of the family, such as settlement:1")
	return cmd
}

// newestInstead adds to the refusal of a letter that was forked before that the newest run of its
// case is an open dead letter.
func newestInstead(ctx context.Context, be backend.Backend, err error) error {
	var refused *refusal.RefusedError
	if !errors.As(err, &refused) || refused.Letter != background.LetterForked || refused.ActiveRun == refused.Run {
		return err
	}
	newest, failed := be.Cases.Run(ctx, refused.ActiveRun)
	if failed != nil || newest.Letter != background.LetterOpen {
		return err // the refusal alone is right as well
	}
	return shell.WithCode(shell.ExitFailed, fmt.Errorf("%s: run %s was forked already, and its newest run is %s, an open dead letter: fork that, or use recourse dlq retry", refused.Gate, refused.Run, refused.ActiveRun))
}

// forkBatch forks the selected letters by one plan.
func forkBatch(sh *shell.Shell, cmd *cobra.Command, l *letterCommand, p *policy.Flags, m *batchFlags, queue string) error {
	q, err := m.planRequest(cmd, bulk.Fork, l.reason)
	if err != nil {
		return err
	}
	q.Queue = queue
	return m.run(sh, cmd, &l.Flags, q, func(ctx context.Context, be backend.Backend, q *bulk.Request) error {
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

// checkMarks returns an error if somebody marked the letter as not worth a retry by itself, or
// as needing review. A letter without marks may be retried.
func checkMarks(ctx context.Context, be backend.Backend, run receipts.RunID, force bool) error {
	if force {
		return nil
	}
	seen, err := be.DeadLetters.Inspect(ctx, run)
	if errors.Is(err, refusal.ErrNotFound) {
		return nil // the fork returns the error for this run
	}
	d := seen.Annotations
	if err != nil || d.MarkReason == "" || d.ReprocessEligible && !d.ManualReviewRequired {
		return err
	}
	return shell.WithCode(shell.ExitFailed, fmt.Errorf("run %s is marked: %s (worth a retry by itself: %s; needs review: %s); --force ignores the marks",
		run, d.MarkReason, shell.YesNo(d.ReprocessEligible), shell.YesNo(d.ManualReviewRequired)))
}
