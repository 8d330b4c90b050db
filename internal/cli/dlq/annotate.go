package dlq

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

func hold(sh *shell.Shell) *cobra.Command {
	return annotateCommand(sh, "hold RUN", "Keep an open dead letter whatever its retention says", `Keep an open dead letter: while it is held, neither retention nor a purge takes it, and
no rule tries it again. A person who names it may still fork or reconcile it.`,
		func(ctx context.Context, be backend.Backend, l *letterCommand) (postadjudication.Annotations, error) {
			return be.DeadLetters.Hold(ctx, l.run, l.reason)
		})
}

func release(sh *shell.Shell) *cobra.Command {
	return annotateCommand(sh, "release RUN", "Let a held dead letter go", `Let a held dead letter go: its retention applies again, counted from its death.`,
		func(ctx context.Context, be backend.Backend, l *letterCommand) (postadjudication.Annotations, error) {
			return be.DeadLetters.Release(ctx, l.run, l.reason)
		})
}

func mark(sh *shell.Shell) *cobra.Command {
	var eligible, review string
	q := postadjudication.MarkRequest{}
	cmd := annotateCommand(sh, "mark RUN", "Say whether a dead letter is worth another try, or must be looked at", `Mark an open dead letter. What nobody has marked follows from how it died. Marks steer
people and rules; they open no gate.`,
		func(ctx context.Context, be backend.Backend, l *letterCommand) (postadjudication.Annotations, error) {
			q.Reason = l.reason
			return be.DeadLetters.Mark(ctx, l.run, q)
		})
	triStateFlag(cmd.Flags(), &eligible, "eligible", "worth another try", "not worth one")
	triStateFlag(cmd.Flags(), &review, "review", "a person should look first", "nobody needs to")
	act := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(parseTriState("--eligible", eligible, &q.ReprocessEligible), parseTriState("--review", review, &q.ManualReviewRequired)); err != nil {
			return shell.Usage(cmd, err)
		}
		if q.ReprocessEligible == nil && q.ManualReviewRequired == nil {
			return shell.Usage(cmd, errors.New("--eligible or --review is needed"))
		}
		return act(cmd, args)
	}
	return cmd
}

// annotateCommand is a command that says something of one letter, and shows what is said of it
// then.
func annotateCommand(sh *shell.Shell, use, short, long string, apply func(context.Context, backend.Backend, *letterCommand) (postadjudication.Annotations, error)) *cobra.Command {
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

func showAnnotation(s *screen.Screen, d postadjudication.Annotations) error {
	held := "held by nobody"
	if d.Held {
		held = "held (" + d.HoldReason + ")"
	}
	s.Text("Letter %s is %s; worth another try: %s; to be looked at first: %s.", d.Run, held, shell.YesNo(d.ReprocessEligible), shell.YesNo(d.ManualReviewRequired))
	if d.ExpiresAt != nil {
		s.Text("Its retention ends at %s UTC.", d.ExpiresAt.UTC().Format("2006-01-02 15:04:05"))
	} else {
		s.Text("Retention does not touch it now.")
	}
	return s.Err()
}
