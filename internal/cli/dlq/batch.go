package dlq

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// batchFlags are the flags of a command that does what it does with many letters, too: as one
// plan, which is shown before it runs.
type batchFlags struct {
	bulkFlags
	yes, detach bool
	eligible    bool           // letters were left out that are not worth another try, unasked
	flags       *pflag.FlagSet // those that mean nothing for one letter
}

// bind defines the flags, but for some that mean something else to the command.
func (m *batchFlags) bind(cmd *cobra.Command, except ...string) {
	m.flags = pflag.NewFlagSet("batch", pflag.ContinueOnError)
	m.bulkFlags.bind(m.flags, except...)
	detachFlag(m.flags, &m.detach)
	cmd.Flags().AddFlagSet(m.flags)
	shell.YesFlag(cmd.Flags(), &m.yes)
}

// notForOne refuses, beside the name of one letter, what says which of many are meant.
func (m *batchFlags) notForOne(cmd *cobra.Command) (err error) {
	m.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && err == nil {
			err = shell.Usage(cmd, errors.New("RUN and --"+f.Name+" exclude each other: that is for many letters"))
		}
	})
	return err
}

// planRequest is the request of the flags. It must say which letters are meant.
func (m *batchFlags) planRequest(cmd *cobra.Command, action postadjudication.BulkAction, reason string) (postadjudication.BulkRequest, error) {
	q, err := m.request(cmd, reason)
	q.Action = action
	if err == nil && !q.All && !m.selects(q.Filter) {
		err = shell.Usage(cmd, errors.New("RUN, a filter or --all is needed"))
	}
	return q, err
}

// excludeIneligible leaves out letters of which it is said that trying them again is not worth
// while, unless that is forced or asked about.
func (m *batchFlags) excludeIneligible(cmd *cobra.Command, q *postadjudication.BulkRequest, force bool) error {
	switch said := q.Filter.Reprocess; {
	case force && said != nil:
		return shell.Usage(cmd, errors.New("--force and --eligible exclude each other"))
	case force || said != nil:
		return nil
	}
	yes := true
	q.Filter.Reprocess, q.All, m.eligible = &yes, false, true
	return nil
}

// run makes a plan, shows it, and lets it run when a person says so. complete adds to the
// request what takes a backend to know.
func (m *batchFlags) run(sh *shell.Shell, cmd *cobra.Command, o *backend.Flags, q postadjudication.BulkRequest, complete func(context.Context, backend.Backend, *postadjudication.BulkRequest) error) error {
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
		var nothing *postadjudication.NothingSelectedError
		switch {
		case errors.As(err, &nothing):
			return m.answerNothing(sh, nothing)
		case err != nil:
			return err
		}
		return runPlanned(ctx, sh, o, be, plan, m.yes, m.detach)
	})
}

// answerNothing is the answer where nothing was planned. It says which letters were left out unasked.
func (m *batchFlags) answerNothing(sh *shell.Shell, nothing *postadjudication.NothingSelectedError) error {
	if err := backend.AnswerNothing(sh, nothing); err != nil || sh.JSON || !m.eligible {
		return err
	}
	s := sh.Screen()
	s.Text("Only letters that are worth another try were meant: --force is about the others, too.")
	return s.Err()
}

// runPlanned lets a plan run that was made by the same command, unless there is nothing
// that it could do.
func runPlanned(ctx context.Context, sh *shell.Shell, o *backend.Flags, be backend.Backend, plan postadjudication.Bulk, yes, detach bool) error {
	if plan.Ready == 0 {
		return cmp.Or(backend.AnswerPlan(sh, o, plan), incompleteError(o, plan))
	}
	if plan.People > 1 {
		return &postadjudication.SecondPersonError{Plan: plan}
	}
	if err := confirmBulk(ctx, sh, plan, yes); err != nil {
		return err
	}
	return startBulk(ctx, sh, o, be, plan.ID, plan.Hash, nil, detach)
}
