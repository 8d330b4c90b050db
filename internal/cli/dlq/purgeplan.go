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
