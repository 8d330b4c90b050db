package dlq

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// removalFlags are the flags of purge and clear.
type removalFlags struct {
	backend.Flags
	reason, confirm string
	yes, dryRun     bool
}

func (r *removalFlags) bind(f *pflag.FlagSet, confirm string) {
	r.BindActor(f)
	archive := pflag.NewFlagSet("", pflag.ContinueOnError)
	r.BindArchive(archive)
	r.BindLocal(f, archive)
	f.StringVar(&r.reason, "reason", "", "reason to record (required)")
	f.BoolVar(&r.dryRun, "dry-run", false, "only show what would be removed")
	f.StringVar(&r.confirm, "confirm", "", "instead of asking, proceed only if this is "+confirm)
	shell.YesFlag(f, &r.yes)
}

// check returns an error for missing or conflicting flags. A dry run needs no reason.
func (r *removalFlags) check(sh *shell.Shell, cmd *cobra.Command) error {
	if r.dryRun {
		r.Mutates = false
		if r.yes || r.confirm != "" {
			return shell.Usage(cmd, errors.New("--dry-run removes nothing: it excludes --yes and --confirm"))
		}
		return nil
	}
	if err := shell.NeedReason(cmd, r.reason); err != nil {
		return err
	}
	return sh.NeedTerminal(cmd, r.yes || r.confirm != "")
}

// remover removes letters: plan returns what would be removed, word the confirmation of a plan,
// and do removes with that confirmation.
type remover struct {
	plan func(context.Context, backend.Backend) (postadjudication.PurgePlan, error)
	word func(postadjudication.PurgePlan) string
	do   func(ctx context.Context, be backend.Backend, word string) (postadjudication.Purged, error)
}

func purgeCommand(sh *shell.Shell) *cobra.Command {
	var r removalFlags
	var p purgePlanFlags
	cmd := &cobra.Command{
		Use: "purge", Short: "Remove the open dead letters that a filter selects", Args: shell.Exactly(),
		Long: `Remove the open dead letters that a filter selects, after showing their number and asking
for confirmation. Held letters, and letters for which it is unknown whether money moved, are
never removed. Cases, reservations and receipts stay. Removing letters of settlements takes
two people, unless the tenant is set to one (recourse people): the command then stores a
plan and prints the command for the second person (exit code 5).

With --filter, --limit, --parallel, --throttle or --detach the letters are removed by a
plan, which a running recourse serve executes with its own archive while this command shows
the progress. Without these flags they are removed in one call: by the --server, or by this
program, which writes them to --archive.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.wanted() {
				return purgeByPlan(sh, cmd, &r, &p)
			}
			filter, err := p.read()
			if err != nil {
				return shell.Usage(cmd, err)
			}
			q := postadjudication.PurgeRequest{Reason: r.reason, Filter: filter}
			return remove(sh, cmd, &r, remover{
				func(ctx context.Context, be backend.Backend) (postadjudication.PurgePlan, error) {
					return be.DeadLetters.PlanPurge(ctx, q)
				},
				func(p postadjudication.PurgePlan) string { return strconv.Itoa(p.Letters) },
				func(ctx context.Context, be backend.Backend, word string) (postadjudication.Purged, error) {
					q.Confirm = word
					return be.DeadLetters.Purge(ctx, q)
				},
			})
		},
	}
	r.bind(cmd.Flags(), "the number of letters that would be removed")
	p.bind(cmd.Flags())
	return cmd
}

func clearCommand(sh *shell.Shell) *cobra.Command {
	var r removalFlags
	var family string
	cmd := &cobra.Command{
		Use: "clear", Short: "Remove all open dead letters of a family", Args: shell.Exactly(),
		Long: `Remove all open dead letters of a family of a tenant, after showing their number and asking
for confirmation. Held letters, and letters for which it is unknown whether money moved, are
never removed. Cases, reservations and receipts stay.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if family == "" {
				return shell.Usage(cmd, errors.New("--family is missing: the family whose letters are removed, such as "+postadjudication.Family))
			}
			q := postadjudication.ClearRequest{Reason: r.reason, Family: family}
			return remove(sh, cmd, &r, remover{
				func(ctx context.Context, be backend.Backend) (postadjudication.PurgePlan, error) {
					return be.DeadLetters.PlanClear(ctx, q)
				},
				func(postadjudication.PurgePlan) string { return family },
				func(ctx context.Context, be backend.Backend, word string) (postadjudication.Purged, error) {
					q.Confirm = word
					return be.DeadLetters.Clear(ctx, q)
				},
			})
		},
	}
	r.bind(cmd.Flags(), "the name of the family")
	cmd.Flags().StringVar(&family, "family", "", "family whose open letters are removed (required)")
	return cmd
}

// remove removes letters after a confirmation; a dry run only shows what would be removed.
func remove(sh *shell.Shell, cmd *cobra.Command, r *removalFlags, do remover) error {
	if err := r.check(sh, cmd); err != nil {
		return err
	}
	return backend.With(sh, cmd, &r.Flags, func(ctx context.Context, be backend.Backend) error {
		word := r.confirm
		if word == "" {
			would, err := do.plan(ctx, be)
			if err != nil {
				return err
			}
			if r.dryRun {
				return showPlan(sh, would)
			}
			if err := sh.Confirm(ctx, wouldRemove(would), r.yes); err != nil {
				return err
			}
			word = do.word(would)
		}
		did, err := do.do(ctx, be, word)
		if err != nil {
			return err
		}
		if sh.JSON {
			return sh.Answer(did)
		}
		out := sh.Screen()
		out.Text("%s removed. Skipped: %d held, %d of unknown outcome, %d that changed meanwhile.", shell.Plural(did.Letters, "letter"), did.Held, did.Unknown, did.ChangedMeanwhile)
		return out.Err()
	})
}

// showPlan writes what would be removed.
func showPlan(sh *shell.Shell, p postadjudication.PurgePlan) error {
	if sh.JSON {
		return sh.Answer(p)
	}
	out := sh.Screen()
	out.Text("%s Nothing was changed.", wouldRemove(p))
	return out.Err()
}

func wouldRemove(p postadjudication.PurgePlan) string {
	return fmt.Sprintf("%s would be removed; their %s stays reserved; %d held and %d of unknown outcome would be skipped.",
		shell.Plural(p.Letters, "letter"), shell.Amounts(p.Money), p.Held, p.Unknown)
}

// purgePlanFlags are the flags of a purge: those that select letters, and those that make it a plan.
type purgePlanFlags struct {
	bulkFlags
	detach bool
	flags  *pflag.FlagSet // flags that make the purge a plan
}

func (p *purgePlanFlags) bind(to *pflag.FlagSet) {
	p.letterFlags.bind(to)
	p.flags = pflag.NewFlagSet("plan", pflag.ContinueOnError)
	whereFlag(p.flags, &p.q.Where)
	p.bindPace(p.flags)
	detachFlag(p.flags, &p.detach)
	to.AddFlagSet(p.flags)
}

// wanted reports whether a flag that makes the purge a plan is given.
func (p *purgePlanFlags) wanted() (is bool) {
	p.flags.VisitAll(func(f *pflag.Flag) { is = is || f.Changed })
	return is
}

// purgeByPlan removes letters by a plan, after a confirmation. A dry run stores the plan and does
// not start it.
func purgeByPlan(sh *shell.Shell, cmd *cobra.Command, r *removalFlags, p *purgePlanFlags) error {
	if cmd.Flags().Changed("archive") {
		return shell.Usage(cmd, errors.New("--archive cannot be used with a plan: the server that executes it has its own archive"))
	}
	if err := r.check(sh, cmd); err != nil {
		return err
	}
	if r.reason == "" && r.dryRun {
		r.reason = "a dry run"
	}
	r.Mutates = true // a plan records its planner, also in a dry run
	q, err := p.request(cmd, r.reason)
	if err != nil {
		return err
	}
	if !p.selects(q.Filter) {
		return shell.Usage(cmd, errors.New("a filter is required; recourse dlq clear removes all letters of a family"))
	}
	q.Action = postadjudication.BulkPurge
	return backend.With(sh, cmd, &r.Flags, func(ctx context.Context, be backend.Backend) error {
		plan, err := be.Bulk.Plan(ctx, q)
		var nothing *postadjudication.NothingSelectedError
		if err != nil && !errors.As(err, &nothing) {
			return err
		}
		if err == nil && r.dryRun {
			return backend.AnswerPlan(sh, &r.Flags, plan)
		}
		if r.confirm != "" && r.confirm != strconv.FormatInt(plan.Ready, 10) {
			return &refusal.FieldError{Field: "confirm", Problem: fmt.Sprintf("must be the number of letters that would be removed, which is %d now", plan.Ready)}
		}
		if err != nil {
			return err
		}
		return runPlanned(ctx, sh, &r.Flags, be, plan, r.yes || r.confirm != "", p.detach)
	})
}
