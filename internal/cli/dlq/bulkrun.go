package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication"
)

const (
	bulkPollInterval = 250 * time.Millisecond // how often a plan that runs is looked at
	bulkIdlePolls    = 20                     // looks after which it is odd that nothing was done
)

func bulkRun(sh *shell.Shell) *cobra.Command {
	var hash, incident, reason string
	var yes, detach bool
	cmd := planCommand(sh, "run PLAN", "Let a plan run that you have looked at", true, func(ctx context.Context, o *backend.Flags, be backend.Backend, id uuid.UUID) error {
		b, err := be.Bulk.Get(ctx, id)
		if err != nil {
			return err
		}
		var breakGlass *postadjudication.BreakGlass
		if incident != "" {
			breakGlass = &postadjudication.BreakGlass{Reason: reason, Incident: incident}
		}
		if b.State == postadjudication.BulkDone {
			if b, err = be.Bulk.Run(ctx, id, hash, breakGlass); err != nil {
				return err // who may not let it run is told so
			}
			return answerDone(sh, b)
		}
		if err := confirmBulk(ctx, sh, b, yes); err != nil {
			return err
		}
		return startBulk(ctx, sh, o, be, id, hash, breakGlass, detach)
	})
	cmd.Flags().StringVar(&incident, "break-glass", "", "an incident for which you let run alone what you planned, as an approver; it raises an alarm")
	cmd.Flags().StringVar(&reason, "reason", "", "why nobody else could (required with --break-glass)")
	cmd.Flags().StringVar(&hash, "hash", "", "of the plan, as it was shown (required)")
	detachFlag(cmd.Flags(), &detach)
	shell.YesFlag(cmd.Flags(), &yes)
	return withCheck(cmd, func(cmd *cobra.Command) error {
		if hash == "" {
			return shell.Usage(cmd, errors.New("--hash is missing: it stands in the plan"))
		}
		if (incident == "") != (reason == "") {
			return shell.Usage(cmd, errors.New("--break-glass and --reason are given together"))
		}
		return sh.NeedTerminal(cmd, yes)
	})
}

// answerDone answers who lets a plan run that was done before: nothing of it is tried again.
func answerDone(sh *shell.Shell, b postadjudication.Bulk) error {
	if sh.JSON {
		return sh.Answer(b)
	}
	s := sh.Screen()
	view.Plan(s, b)
	s.Text("It was done before, and nothing was tried again.")
	return s.Err()
}

func detachFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "detach", false, "do not wait for its end")
}

// confirmBulk shows a plan to a person, and asks whether it may run.
func confirmBulk(ctx context.Context, sh *shell.Shell, b postadjudication.Bulk, yes bool) error {
	if !yes {
		s := screen.New(sh.Err)
		view.Plan(s, b)
		if err := s.Err(); err != nil {
			return err
		}
	}
	return sh.Confirm(ctx, planEffect(b), yes)
}

func planEffect(b postadjudication.Bulk) string {
	return fmt.Sprintf("%s will be tried on %s, of which %d could be done when it was planned, with %s reserved for them.", b.Action, shell.Plural(int(b.Items), "letter"), b.Ready, shell.Amounts(b.Money))
}

// startBulk starts a plan and, unless it is to go on alone, waits for what comes of it.
// To end the waiting ends nothing else.
func startBulk(ctx context.Context, sh *shell.Shell, o *backend.Flags, be backend.Backend, id uuid.UUID, hash string, breakGlass *postadjudication.BreakGlass, detach bool) error {
	b, err := be.Bulk.Run(ctx, id, hash, breakGlass)
	if err != nil {
		return err
	}
	if !detach {
		if b, err = awaitBulk(ctx, sh, o, be, b); err != nil {
			return err
		}
	}
	if err := backend.AnswerPlan(sh, o, b); err != nil {
		return err
	}
	return incompleteError(o, b)
}

// incompleteError is what a plan that stands still has not done: whoever goes on when this
// command succeeds must not find letters that nobody has tried.
func incompleteError(o *backend.Flags, b postadjudication.Bulk) error {
	items := fmt.Sprintf("recourse dlq bulk items %s%s", b.ID, o.RepeatFlags(false))
	switch p := b.Progress; {
	case b.State == postadjudication.BulkRunning: // it goes on
		return nil
	case p.Pending > 0 && b.State != postadjudication.BulkPlanned:
		return fmt.Errorf("the plan was %s by %s (%s) with %d of %d %ss not tried: %s --result pending", b.State, b.ChangedBy, b.ChangedReason, p.Pending, b.Items, view.PlanItem(b), items)
	case p.Done < b.Ready:
		return fmt.Errorf("%d of %d %ss that could be done were not: %s", b.Ready-p.Done, b.Ready, view.PlanItem(b), items)
	case b.Items > 0 && p.Done == 0:
		return fmt.Errorf("nothing was done: %s refused: %s", shell.Plural(int(b.Items), view.PlanItem(b)), items)
	}
	return nil
}

// awaitBulk looks at a plan until it stands still.
func awaitBulk(ctx context.Context, sh *shell.Shell, o *backend.Flags, be backend.Backend, b postadjudication.Bulk) (postadjudication.Bulk, error) {
	bar := screen.NewProgress(sh.Err, string(b.Action), int(b.Items))
	tick := time.NewTicker(bulkPollInterval)
	defer tick.Stop()
	for polls := 0; b.State == postadjudication.BulkRunning; polls++ {
		if err := bar.At(int(b.Items - b.Progress.Pending)); err != nil {
			return b, err
		}
		if polls == bulkIdlePolls && b.Progress.Pending == b.Items {
			sh.Note("nothing was done yet: a plan is worked on by a running recourse serve, after others before it; a finding waits while its run is being called")
		}
		select {
		case <-ctx.Done():
			err := errors.Join(ctx.Err(), bar.End())
			sh.Note(followHint(o, b.ID))
			return b, err
		case <-tick.C:
		}
		now, err := be.Bulk.Get(ctx, b.ID)
		if err != nil {
			err = errors.Join(err, bar.End())
			sh.Note(followHint(o, b.ID))
			return b, err
		}
		b = now
	}
	return b, bar.End()
}

func followHint(o *backend.Flags, id uuid.UUID) string {
	return fmt.Sprintf("the plan goes on without you; to see how far it is, or to end it:\n  recourse dlq bulk show %s%s\n  recourse dlq bulk cancel %s%s --reason ...",
		id, o.RepeatFlags(false), id, o.RepeatFlags(true))
}
