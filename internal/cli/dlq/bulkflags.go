package dlq

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// bulkFlags are the flags that select the letters of a plan, and limit its work.
type bulkFlags struct {
	letterFlags
	q bulk.Request
}

func (b *bulkFlags) bind(f *pflag.FlagSet, except ...string) {
	b.letterFlags.bind(f, except...)
	whereFlag(f, &b.q.Where)
	f.BoolVar(&b.q.All, "all", false, "select all open letters, instead of a filter")
	b.bindPace(f)
}

// bindPace defines the flags that limit how many letters a plan has, and how fast they are done.
func (b *bulkFlags) bindPace(f *pflag.FlagSet) {
	f.Int64Var(&b.q.Limit, "limit", 0, "maximum number of letters, the oldest first (0: all)")
	f.IntVar(&b.q.Parallel, "parallel", 10, "letters processed at once, 1 to 64")
	f.IntVar(&b.q.Throttle, "throttle", 0, "maximum letters a second (0: no limit)")
}

// request returns the request of the flags.
func (b *bulkFlags) request(cmd *cobra.Command, reason string) (bulk.Request, error) {
	if err := shell.NeedReason(cmd, reason); err != nil {
		return b.q, err
	}
	filter, err := b.letterFlags.read()
	if cmd.Flags().Changed("parallel") && b.q.Parallel < 1 {
		err = errors.Join(err, errors.New("--parallel must be at least 1"))
	}
	err = errors.Join(err, checkWhere(cmd, b.q.Where))
	if err != nil {
		return b.q, shell.Usage(cmd, err)
	}
	if b.q.All && b.selects(filter) {
		return b.q, shell.Usage(cmd, errors.New("--all and a filter exclude each other"))
	}
	if b.q.All && filter == (deadletter.Filter{Status: filter.Status}) {
		filter = deadletter.Filter{} // a plan takes open letters only
	}
	b.q.Filter, b.q.Reason = filter, reason
	return b.q, nil
}

// selects reports whether the flags select letters by more than their status.
func (b *bulkFlags) selects(filter deadletter.Filter) bool {
	filter.Status = ""
	return filter != (deadletter.Filter{}) || b.q.Where != ""
}
