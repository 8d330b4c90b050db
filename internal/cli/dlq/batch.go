package dlq

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// batchFlags are the flags of a command on one letter that also works on many: as one plan, which
// is shown before it runs.
type batchFlags struct {
	bulkFlags
	yes, detach bool
	flags       *pflag.FlagSet         // flags that are refused with the name of one letter
	leftOut     map[refusal.Gate]int64 // letters that are selected, but that the command leaves out
}

// bind defines the flags, except some whose names the command uses otherwise.
func (m *batchFlags) bind(cmd *cobra.Command, except ...string) {
	m.flags = pflag.NewFlagSet("batch", pflag.ContinueOnError)
	m.bulkFlags.bind(m.flags, except...)
	detachFlag(m.flags, &m.detach)
	cmd.Flags().AddFlagSet(m.flags)
	shell.YesFlag(cmd.Flags(), &m.yes)
}

// notForOne returns an error if a flag for many letters is given with the name of one.
func (m *batchFlags) notForOne(cmd *cobra.Command) (err error) {
	m.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && err == nil {
			err = shell.Usage(cmd, errors.New("RUN and --"+f.Name+" exclude each other: the flag is for many letters"+shell.ValueHint(cmd, cmd.Flags().Arg(0))))
		}
	})
	return err
}

// planRequest returns the request of the flags, which must select letters.
func (m *batchFlags) planRequest(cmd *cobra.Command, action bulk.Action, reason string) (bulk.Request, error) {
	q, err := m.request(cmd, reason)
	q.Action = action
	if err == nil && !q.All && !m.selects(q.Filter) {
		err = shell.Usage(cmd, errors.New("RUN, a filter or --all is required"))
	}
	return q, err
}

// run stores a plan, shows it, and runs it once a person confirms. complete, if not nil, adds to
// the request what only the backend knows.
func (m *batchFlags) run(sh *shell.Shell, cmd *cobra.Command, o *backend.Flags, q bulk.Request, complete func(context.Context, backend.Backend, *bulk.Request) error) error {
	if err := sh.NeedTerminal(cmd, m.yes); err != nil {
		return err
	}
	return backend.With(sh, cmd, o, func(ctx context.Context, be backend.Backend) error {
		if complete != nil {
			if err := complete(ctx, be, &q); err != nil {
				return err
			}
		}
		plan, err := be.Bulk.Plan(ctx, q)
		var nothing *bulk.NothingSelectedError
		switch {
		case errors.As(err, &nothing):
			return backend.AnswerNothing(sh, nothing, m.leftOut)
		case err != nil:
			return err
		}
		return runPlanned(ctx, sh, o, be, plan, func() error { return confirmBulk(ctx, sh, plan, m.yes) }, bulkStart{hash: plan.Hash, detach: m.detach})
	})
}

// runPlanned runs a plan that the same command stored, after a confirmation, unless all its items
// would be refused.
func runPlanned(ctx context.Context, sh *shell.Shell, o *backend.Flags, be backend.Backend, plan bulk.Plan, confirm func() error, start bulkStart) error {
	if plan.Ready == 0 {
		return cmp.Or(backend.AnswerPlan(sh, o, plan), refusedError(o, plan))
	}
	if plan.People > 1 {
		return &bulk.SecondPersonError{Plan: plan}
	}
	if err := confirm(); err != nil {
		return err
	}
	return startBulk(ctx, sh, o, be, plan.ID, start)
}
