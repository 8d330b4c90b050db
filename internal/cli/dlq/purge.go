package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// removal is a command that removes letters by a plan: purge or clear.
type removal struct {
	bulkFlags
	to                  backend.Flags
	reason, confirm     string
	yes, dryRun, detach bool
}

func (r *removal) bind(f *pflag.FlagSet, confirm string) {
	r.to.BindActor(f)
	archive := pflag.NewFlagSet("", pflag.ContinueOnError)
	r.to.BindArchive(archive)
	r.to.BindLocal(f, archive)
	whereFlag(f, &r.q.Where)
	r.bindPace(f)
	f.StringVar(&r.reason, "reason", "", "reason to record (required, except in a dry run)")
	f.BoolVar(&r.dryRun, "dry-run", false, "only show what would be removed, and store the plan")
	f.StringVar(&r.confirm, "confirm", "", "instead of asking, proceed only if this is "+confirm)
	detachFlag(f, &r.detach)
	shell.YesFlag(f, &r.yes)
}

// check returns an error for missing or conflicting flags.
func (r *removal) check(sh *shell.Shell, cmd *cobra.Command) error {
	if r.detach && r.to.Retention.Archive != "" {
		return shell.Usage(cmd, errors.New("--detach leaves the letters to a server, which has its own archive: it excludes --archive"))
	}
	if !r.dryRun {
		return sh.NeedTerminal(cmd, r.yes || r.confirm != "")
	}
	if r.yes || r.confirm != "" {
		return shell.Usage(cmd, errors.New("--dry-run removes nothing: it excludes --yes and --confirm"))
	}
	r.reason = cmp.Or(r.reason, "a dry run")
	return nil
}

const removalText = `Held letters, and letters for which it is unknown whether money moved, are
never removed. Cases, reservations and receipts stay.

The letters are stored as a plan, which removes no letter twice and none that changed since.
With --server, or with --detach, a running recourse serve executes the plan, with its own
archive. Otherwise this program does, and writes the letters to --archive: Ctrl-C pauses the
plan. If the program dies, a running recourse serve continues the plan with its own archive; one
without an archive pauses a plan that was made with --archive. A plan that is paused, or on which
nobody works, is continued by recourse dlq bulk run PLAN --hash HASH --here --archive DIR.
Running this command again makes a new plan of the letters that are left.

A plan that removes letters of settlements must be run by another person, unless the tenant is
set to one (recourse people): this command then prints the command for that person (exit code 5).`

func purgeCommand(sh *shell.Shell) *cobra.Command {
	var r removal
	cmd := &cobra.Command{
		Use: "purge", Short: "Remove the open dead letters that a filter selects", Args: shell.Exactly(),
		Long: "Remove the open dead letters that a filter selects, after showing their number and asking for\nconfirmation. " + removalText,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.check(sh, cmd); err != nil {
				return err
			}
			q, err := r.request(cmd, r.reason)
			if err == nil && !r.selects(q.Filter) {
				err = shell.Usage(cmd, errors.New("a filter is required; recourse dlq clear removes all letters of a family"))
			}
			if err != nil {
				return err
			}
			return r.remove(sh, cmd, q, func(plan bulk.Plan) error {
				if r.confirm == strconv.FormatInt(plan.Ready, 10) {
					return nil
				}
				return &refusal.FieldError{Field: "confirm", Problem: fmt.Sprintf("must be the number of letters that would be removed, which is %d now", plan.Ready)}
			})
		},
	}
	r.letterFlags.bind(cmd.Flags())
	r.bind(cmd.Flags(), "the number of letters that would be removed")
	return cmd
}

func clearCommand(sh *shell.Shell) *cobra.Command {
	var r removal
	var family string
	cmd := &cobra.Command{
		Use: "clear [FAMILY]", Short: "Remove all open dead letters of a family", Args: shell.AtMostOne,
		Long: "Remove all open dead letters of a family of a tenant, after showing their number and asking for\nconfirmation. " + removalText,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if hint := shell.ValueHint(cmd, args[0]); hint != "" || family != "" && family != args[0] {
					return shell.Usage(cmd, errors.New("FAMILY and --family name two families, or "+args[0]+" is none"+hint))
				}
				family = args[0]
			}
			if family == "" {
				return shell.Usage(cmd, errors.New("--family is missing: the family whose letters are removed, such as "+postadjudication.Family))
			}
			if err := r.check(sh, cmd); err != nil {
				return err
			}
			q, err := r.request(cmd, r.reason)
			if err != nil {
				return err
			}
			q.Filter.Family = family
			if r.confirm != "" && r.confirm != family {
				return shell.Usage(cmd, errors.New("--confirm must be the name of the family whose letters are all to be removed"))
			}
			return r.remove(sh, cmd, q, func(bulk.Plan) error { return nil })
		},
	}
	r.letterFlags.bind(pflag.NewFlagSet("", pflag.ContinueOnError)) // none of them but --family
	r.bind(cmd.Flags(), "the name of the family")
	cmd.Flags().StringVar(&family, "family", "", "family whose open letters are removed, instead of FAMILY (also --workflow-id)")
	return cmd
}

// remove stores the plan of a request, and runs it after a confirmation: confirmed checks --confirm.
// A dry run only shows the plan.
func (r *removal) remove(sh *shell.Shell, cmd *cobra.Command, q bulk.Request, confirmed func(bulk.Plan) error) error {
	q.Action = bulk.Purge
	return backend.With(sh, cmd, &r.to, func(ctx context.Context, be backend.Backend) error {
		plan, err := be.Bulk.Plan(ctx, q)
		var nothing *bulk.NothingSelectedError
		if err != nil && !errors.As(err, &nothing) {
			return err
		}
		if r.confirm != "" {
			if err := confirmed(plan); err != nil {
				return errors.Join(err, withdraw(ctx, be, plan))
			}
		}
		if err != nil {
			return err
		}
		if r.dryRun {
			return answerDryRun(sh, &r.to, plan)
		}
		return runPlanned(ctx, sh, &r.to, be, plan, func() error { return sh.Confirm(ctx, wouldRemove(plan), r.yes || r.confirm != "") },
			bulkStart{hash: plan.Hash, detach: r.detach, here: be.RunHere != nil && !r.detach})
	})
}

// withdraw cancels a plan that was not confirmed, so that nobody runs it.
func withdraw(ctx context.Context, be backend.Backend, plan bulk.Plan) error {
	if plan.ID == uuid.Nil {
		return nil // nothing was selected
	}
	_, err := be.Bulk.Cancel(ctx, plan.ID, "--confirm was another number")
	return err
}

// answerDryRun writes what a plan would remove, the plan, and the command that runs it.
func answerDryRun(sh *shell.Shell, o *backend.Flags, plan bulk.Plan) error {
	if !sh.JSON {
		s := sh.Screen()
		s.Text("%s", wouldRemove(plan))
		if err := s.Err(); err != nil {
			return err
		}
	}
	return backend.AnswerPlan(sh, o, plan)
}

func wouldRemove(p bulk.Plan) string {
	return fmt.Sprintf("%s would be removed; their %s stays reserved; %d held and %d of unknown outcome would be skipped.",
		shell.Plural(int(p.Ready), "letter"), shell.Amounts(p.Money), p.Refused[refusal.GateHeld], p.Refused[refusal.GateReconcileFirst])
}
