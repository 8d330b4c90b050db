package dlq

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

func hold(sh *shell.Shell) *cobra.Command {
	return annotateCommand(sh, "hold RUN", "Hold an open dead letter, so that retention does not remove it", `Hold an open dead letter: while it is held, retention and purges do not remove it, and no
rule replays it. A person may still fork or reconcile it by its run id.`,
		func(ctx context.Context, be backend.Backend, l *letterCommand) (deadletter.Annotations, error) {
			return be.DeadLetters.Hold(ctx, l.run, l.reason)
		})
}

func release(sh *shell.Shell) *cobra.Command {
	return annotateCommand(sh, "release RUN", "Release a held dead letter", `Release a held dead letter: its retention applies again, counted from its death.`,
		func(ctx context.Context, be backend.Backend, l *letterCommand) (deadletter.Annotations, error) {
			return be.DeadLetters.Release(ctx, l.run, l.reason)
		})
}

func mark(sh *shell.Shell) *cobra.Command {
	var eligible, review string
	q := deadletter.Mark{}
	cmd := annotateCommand(sh, "mark RUN", "Mark whether a dead letter may be retried, and whether a person must review it", `Mark an open dead letter as worth a retry by itself, or as needing review. Without a mark both
values follow from the cause of death. Marks guide people and rules; they override no
safety check.`,
		func(ctx context.Context, be backend.Backend, l *letterCommand) (deadletter.Annotations, error) {
			q.Reason = l.reason
			return be.DeadLetters.Mark(ctx, l.run, q)
		})
	triStateFlag(cmd.Flags(), &eligible, "eligible", "mark as worth a retry by itself", "as not worth one")
	triStateFlag(cmd.Flags(), &review, "review", "mark as needing review by a person", "as needing none")
	act := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(parseTriState("--eligible", eligible, &q.ReprocessEligible), parseTriState("--review", review, &q.ManualReviewRequired)); err != nil {
			return shell.Usage(cmd, err)
		}
		if q.ReprocessEligible == nil && q.ManualReviewRequired == nil {
			return shell.Usage(cmd, errors.New("--eligible or --review is required"))
		}
		return act(cmd, args)
	}
	return cmd
}

// annotateCommand is a command that changes the annotations of one letter and shows the result.
func annotateCommand(sh *shell.Shell, use, short, long string, apply func(context.Context, backend.Backend, *letterCommand) (deadletter.Annotations, error)) *cobra.Command {
	var l letterCommand
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: shell.Exactly("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withLetter(sh, cmd, &l, args[0], func(ctx context.Context, be backend.Backend) error {
				annotations, err := apply(ctx, be, &l)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(annotations)
				}
				return showAnnotation(sh.Screen(), annotations)
			})
		},
	}
	l.NoRedis = true
	l.bind(cmd)
	return cmd
}

func showAnnotation(s *screen.Screen, d deadletter.Annotations) error {
	held := "not held"
	if d.Held {
		held = "held (" + d.HoldReason + ")"
	}
	s.Text("Letter %s is %s; worth a retry by itself: %s; needs review: %s.", d.Run, held, shell.YesNo(d.ReprocessEligible), shell.YesNo(d.ManualReviewRequired))
	if d.ExpiresAt != nil {
		s.Text("Its retention expires at %s UTC.", d.ExpiresAt.UTC().Format("2006-01-02 15:04:05"))
	} else {
		s.Text("Retention does not remove it.")
	}
	return s.Err()
}
