package dlq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/recourse-dev/recourse/postadjudication/bulk"
)

const (
	bulkPollInterval = 250 * time.Millisecond // how often a running plan is read
	bulkIdlePolls    = 20                     // polls without progress before a note is written
)

func bulkRun(sh *shell.Shell) *cobra.Command {
	var start bulkStart
	var incident, reason string
	var yes bool
	var o backend.Flags
	cmd := planCommand(sh, &o, "run PLAN", "Run a plan that you have reviewed", true, func(ctx context.Context, o *backend.Flags, be backend.Backend, id uuid.UUID) error {
		b, err := be.Bulk.Get(ctx, id)
		if err != nil {
			return err
		}
		if incident != "" {
			start.breakGlass = &bulk.BreakGlass{Reason: reason, Incident: incident}
		}
		seen := start.hash == "" // who gives no hash sees the plan first, and runs what they saw
		if seen {
			start.hash = b.Hash
		}
		if b.State == bulk.Done {
			if b, err = be.Bulk.Run(ctx, id, start.hash, start.breakGlass); err != nil {
				return err // the person may not be allowed to run it
			}
			return answerDone(sh, b)
		}
		if seen || !refusedToPlanner(o, b, start) {
			if err := confirmBulk(ctx, sh, b, yes); err != nil {
				return err
			}
		}
		return startBulk(ctx, sh, o, be, id, start)
	})
	cmd.Flags().StringVar(&incident, "break-glass", "", "id of an incident: as an approver, run your own plan without a second person; raises an alarm")
	cmd.Flags().StringVar(&reason, "reason", "", "why no second person was available (required with --break-glass)")
	cmd.Flags().StringVar(&start.hash, "hash", "", "hash of the plan, as the plan shows it (required without a terminal and with --yes; else the plan is shown and confirmed)")
	detachFlag(cmd.Flags(), &start.detach)
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	local.BoolVar(&start.here, "here", false, "for purge: do the work in this program; needs no recourse serve, and continues a plan whose program died")
	o.BindArchive(local)
	o.BindLocal(cmd.Flags(), local)
	shell.YesFlag(cmd.Flags(), &yes)
	return withCheck(cmd, func(cmd *cobra.Command) error {
		if start.hash == "" && (yes || sh.NeedTerminal(cmd, false) != nil) {
			return shell.Usage(cmd, errors.New("--hash is missing: recourse dlq bulk show prints it. On a terminal, without --yes, this command shows the plan instead and asks"))
		}
		if (incident == "") != (reason == "") {
			return shell.Usage(cmd, errors.New("--break-glass and --reason must be given together"))
		}
		if start.here && (start.detach || incident != "") {
			return shell.Usage(cmd, errors.New("--here excludes --detach and --break-glass"))
		}
		if !start.here && o.Retention.Archive != "" {
			return shell.Usage(cmd, errors.New("--archive needs --here: a server has its own archive"))
		}
		if digits, err := hex.DecodeString(start.hash); start.hash != "" && (err != nil || len(digits) != sha256.Size) {
			return shell.Usage(cmd, errors.New("--hash takes the 64 digits that recourse dlq bulk show prints"))
		}
		return sh.NeedTerminal(cmd, yes)
	})
}

// refusedToPlanner reports whether the actor has planned what another person has to run. Nobody is
// asked to confirm it then: the refusal and its receipt come first.
func refusedToPlanner(o *backend.Flags, b bulk.Plan, start bulkStart) bool {
	return b.People > 1 && o.Server == "" && o.Actor == b.Actor && start.breakGlass == nil
}

// answerDone writes a plan that was done before. None of its items is tried again.
func answerDone(sh *shell.Shell, b bulk.Plan) error {
	if sh.JSON {
		return sh.Answer(b)
	}
	s := sh.Screen()
	view.Plan(s, b)
	s.Text("The plan was already done; nothing was tried again.")
	return s.Err()
}

func detachFlag(f *pflag.FlagSet, to *bool) {
	f.BoolVar(to, "detach", false, "do not wait until the plan ends")
}

// confirmBulk shows a plan and asks a person to confirm it. With yes it does neither.
func confirmBulk(ctx context.Context, sh *shell.Shell, b bulk.Plan, yes bool) error {
	if !yes {
		s := screen.New(sh.Err)
		view.Plan(s, b)
		if err := s.Err(); err != nil {
			return err
		}
	}
	return sh.Confirm(ctx, planEffect(b), yes)
}

func planEffect(b bulk.Plan) string {
	switch m := b.Spec.Move; {
	case b.Action == bulk.People:
		return fmt.Sprintf("From then on money is stated or freed by hand by: %d of people.", b.Spec.People)
	case m != nil:
		return fmt.Sprintf("The next generation of %s may be paid by %s instead of %s.", m.Transaction, m.Target, m.From)
	}
	if r := b.Review; r != nil && len(r.Changed) > 0 {
		return fmt.Sprintf("%s will be applied to %s. The others changed since they were planned.", b.Action, view.StillReady(b))
	}
	return fmt.Sprintf("%s will be applied to %s, of which %d were ready when it was planned, with %s reserved.", b.Action, shell.Plural(int(b.Items), "letter"), b.Ready, shell.Amounts(b.Money))
}

// bulkStart is how a plan is started.
type bulkStart struct {
	hash         string
	breakGlass   *bulk.BreakGlass // nil: none
	here, detach bool
}

// run starts the plan.
func (s bulkStart) run(ctx context.Context, be backend.Backend, id uuid.UUID) (bulk.Plan, error) {
	if s.here {
		return be.RunHere(ctx, id, s.hash)
	}
	return be.Bulk.Run(ctx, id, s.hash, s.breakGlass)
}

// startBulk starts a plan and, unless detach is set, waits until it stops. If ctx ends, the
// waiting ends and the plan continues, or is paused if this process worked on it.
func startBulk(ctx context.Context, sh *shell.Shell, o *backend.Flags, be backend.Backend, id uuid.UUID, start bulkStart) error {
	b, err := start.run(ctx, be, id)
	if err != nil {
		if start.here && b.State != "" {
			line := o.RunCommandLine(b)
			if o.Retention.Archive == "" {
				line += " --here"
			}
			sh.Note(fmt.Sprintf("the plan is %s; this continues it:\n  %s", b.State, line))
		}
		if !start.here && ctx.Err() != nil { // the answer to the start may have been on its way
			sh.Note(followHint(o, id, "the plan may have been started"))
		}
		return err
	}
	if !start.detach {
		if b, err = awaitBulk(ctx, sh, o, be, b); err != nil {
			return err
		}
	}
	if err := backend.AnswerPlan(sh, o, b); err != nil {
		return err
	}
	return incompleteError(o, b)
}

// incompleteError returns an error for a plan that stopped before all its items were done. A
// script that continues after exit code 0 must not find letters that were never tried.
func incompleteError(o *backend.Flags, b bulk.Plan) error {
	items := itemsCommandLine(o, b)
	switch p := b.Progress; {
	case b.State == bulk.Running: // not stopped
		return nil
	case p.Pending > 0 && b.State != bulk.Planned:
		return fmt.Errorf("the plan was %s by %s (%s) with %d of %d %ss not tried: %s --result pending", b.State, b.ChangedBy, b.ChangedReason, p.Pending, b.Items, view.PlanItem(b), items)
	case p.Done < b.Ready:
		return fmt.Errorf("of %d ready %ss, %d were not done: %s", b.Ready, view.PlanItem(b), b.Ready-p.Done, items)
	}
	return refusedError(o, b)
}

// refusedError returns an error for a plan all of whose items are refused, with the gates.
func refusedError(o *backend.Flags, b bulk.Plan) error {
	gates := b.Progress.ByGate
	if b.State == bulk.Planned {
		gates = b.Refused
	}
	if b.Items == 0 || b.Ready > 0 || b.Progress.Done > 0 {
		return nil
	}
	return fmt.Errorf("nothing was done: %s refused%s: %s", shell.Plural(int(b.Items), view.PlanItem(b)), backend.Refusals(gates), itemsCommandLine(o, b))
}

func itemsCommandLine(o *backend.Flags, b bulk.Plan) string {
	return fmt.Sprintf("recourse dlq bulk items %s%s", b.ID, o.RepeatFlags(false))
}

// awaitBulk polls a plan until it stops.
func awaitBulk(ctx context.Context, sh *shell.Shell, o *backend.Flags, be backend.Backend, b bulk.Plan) (bulk.Plan, error) {
	bar := screen.NewProgress(sh.Err, string(b.Action), int(b.Items))
	tick := time.NewTicker(bulkPollInterval)
	defer tick.Stop()
	for polls := 0; b.State == bulk.Running; polls++ {
		if err := bar.At(int(b.Items - b.Progress.Pending)); err != nil {
			return b, err
		}
		if polls == bulkIdlePolls && b.Progress.Pending == b.Items {
			sh.Note("no progress yet: a running recourse serve works on plans, one after another; a finding waits while its run is being called")
		}
		select {
		case <-ctx.Done():
			err := errors.Join(ctx.Err(), bar.End())
			sh.Note(followHint(o, b.ID, "the plan continues"))
			return b, err
		case <-tick.C:
		}
		now, err := be.Bulk.Get(ctx, b.ID)
		if err != nil {
			err = errors.Join(err, bar.End())
			sh.Note(followHint(o, b.ID, "the plan continues"))
			return b, err
		}
		b = now
	}
	return b, bar.End()
}

// followHint returns the state of a plan and the commands by which it can be followed and ended.
func followHint(o *backend.Flags, id uuid.UUID, state string) string {
	return fmt.Sprintf("%s; to see its progress, or to cancel it:\n  recourse dlq bulk show %s%s\n  recourse dlq bulk cancel %s%s --reason ...",
		state, id, o.RepeatFlags(false), id, o.RepeatFlags(true))
}
