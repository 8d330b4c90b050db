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
)

// removalFlags are the flags of commands that remove letters.
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
	f.StringVar(&r.reason, "reason", "", "why (required)")
	f.BoolVar(&r.dryRun, "dry-run", false, "only say what would be removed")
	f.StringVar(&r.confirm, "confirm", "", confirm+": does it without asking, and only if that is right")
	shell.YesFlag(f, &r.yes)
}

// check refuses what is missing. To look at what would be removed takes no reason.
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

// remover is how letters are removed: planned, and done when that is confirmed by a word.
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
		Long: `Remove the open dead letters that a filter selects, once you have seen how many they
are and said yes. Held letters and those of unknown money are never touched; cases,
reservations and receipts stay. Where letters of settlements are among them it takes two
people, unless the tenant takes one (recourse people): then it is planned, and the answer
has the line that somebody else types (exit code 5).

With --filter, --limit, --parallel, --throttle or --detach the letters go by a plan, which
a running server works on while this shows how far it is; the server has its own archive.
Without them they go in one call: of the --server, or of this program, which needs none
and puts them into the --archive that is named here.`,
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
	r.bind(cmd.Flags(), "the number of letters to be removed")
	p.bind(cmd.Flags())
	return cmd
}

func clearCommand(sh *shell.Shell) *cobra.Command {
	var r removalFlags
	var family string
	cmd := &cobra.Command{
		Use: "clear", Short: "Remove all open dead letters of a family", Args: shell.Exactly(),
		Long: `Remove all open dead letters of a family of a tenant, once you have seen how many they
are and said yes. Held letters and those of unknown money are never touched; cases,
reservations and receipts stay.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if family == "" {
				return shell.Usage(cmd, errors.New("--family is missing: the letters of which are to go, such as "+postadjudication.Family))
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
	cmd.Flags().StringVar(&family, "family", "", "family whose letters all go (required)")
	return cmd
}

// remove removes letters once that is confirmed, or says what would be removed.
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
		out.Text("%s removed. Passed by: %d held, %d of unknown money, %d that changed meanwhile.", shell.Plural(did.Letters, "letter"), did.Held, did.Unknown, did.ChangedMeanwhile)
		return out.Err()
	})
}

// showPlan says what would be removed.
func showPlan(sh *shell.Shell, p postadjudication.PurgePlan) error {
	if sh.JSON {
		return sh.Answer(p)
	}
	out := sh.Screen()
	out.Text("%s Nothing was changed.", wouldRemove(p))
	return out.Err()
}

func wouldRemove(p postadjudication.PurgePlan) string {
	return fmt.Sprintf("%s would be removed, for which %s stays reserved; %d held and %d of unknown money would be passed by.",
		shell.Plural(p.Letters, "letter"), shell.Amounts(p.Money), p.Held, p.Unknown)
}

// purgePlanFlags are the flags of a purge: those that select letters, and those with which they
// go by a plan.
type purgePlanFlags struct {
	bulkFlags
	detach bool
	flags  *pflag.FlagSet // those that make it a plan
}

func (p *purgePlanFlags) bind(to *pflag.FlagSet) {
	p.letterFlags.bind(to)
	p.flags = pflag.NewFlagSet("plan", pflag.ContinueOnError)
	whereFlag(p.flags, &p.q.Where)
	p.bindPace(p.flags)
	detachFlag(p.flags, &p.detach)
	to.AddFlagSet(p.flags)
}

// wanted reports whether the letters are to go by a plan.
func (p *purgePlanFlags) wanted() (is bool) {
	p.flags.VisitAll(func(f *pflag.Flag) { is = is || f.Changed })
	return is
}

// purgeByPlan removes letters by a plan, once that is confirmed. A dry run leaves the plan,
// which nobody has started.
func purgeByPlan(sh *shell.Shell, cmd *cobra.Command, r *removalFlags, p *purgePlanFlags) error {
	if cmd.Flags().Changed("archive") {
		return shell.Usage(cmd, errors.New("--archive is not for a plan: the server that works on it has its own"))
	}
	if err := r.check(sh, cmd); err != nil {
		return err
	}
	if r.reason == "" && r.dryRun {
		r.reason = "a dry run"
	}
	r.Mutates = true // a plan tells who made it, also when it is only looked at
	q, err := p.request(cmd, r.reason)
	if err != nil {
		return err
	}
	if !p.selects(q.Filter) {
		return shell.Usage(cmd, errors.New("a filter is needed; to remove all of a family, clear it"))
	}
	q.Action = postadjudication.BulkPurge
	return backend.With(sh, cmd, &r.Flags, func(ctx context.Context, be backend.Backend) error {
		plan, err := be.Bulk.Plan(ctx, q)
		if err != nil {
			return err
		}
		if r.dryRun {
			return backend.AnswerPlan(sh, &r.Flags, plan)
		}
		if r.confirm != "" && r.confirm != strconv.FormatInt(plan.Ready, 10) {
			return &postadjudication.FieldError{Field: "confirm", Problem: fmt.Sprintf("must be the number of letters that would be removed, which is %d now", plan.Ready)}
		}
		return runPlanned(ctx, sh, &r.Flags, be, plan, r.yes || r.confirm != "", p.detach)
	})
}
