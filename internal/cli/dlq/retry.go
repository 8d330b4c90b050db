package dlq

import (
	"context"
	"errors"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/policy"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// retryFlags are the flags of retry, for one lineage or many letters.
type retryFlags struct {
	letter letterCommand
	batch  batchFlags
	policy retryLimit
	force  bool
}

func retry(sh *shell.Shell) *cobra.Command {
	var r retryFlags
	cmd := &cobra.Command{
		Use: "retry [RUN or FAMILY]", Short: "Fork the newest run of a lineage, or many dead letters",
		Long: `Fork the newest run of the lineage of RUN: RUN, its ancestors and its forks. The newest
run must be an open dead letter; the fork has its policy. "recourse status" shows the state
of each run.

With FAMILY, as with --family, one plan retries the letters of that family. Without either one
plan retries all letters that a filter (or --all) selects and that are worth a retry by
itself, by their mark or else by their cause of death; it is shown for confirmation first,
after the number of letters that were left out. --force includes these. It does not override
the checks that protect money.`,
		Args: shell.AtMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && familyName.MatchString(args[0]) && shell.ValueHint(cmd, args[0]) == "" {
				if err := cmd.Flags().Set("family", args[0]); err != nil {
					return err
				}
				args = nil
			}
			if len(args) == 0 {
				return retryBatch(sh, cmd, &r)
			}
			return retryOne(sh, cmd, &r, args[0])
		},
	}
	r.letter.bind(cmd)
	f := cmd.Flags()
	r.batch.bind(cmd)
	f.IntVar(&r.policy.attempts, "max-retries", 0, "maximum attempts of each new run, including the first (0: as the dead letter had); without RUN all letters must be of one family")
	f.BoolVar(&r.force, "force", false, "include letters that are not worth a retry by itself, by their mark or else by their cause of death; does not override the checks that protect money")
	return cmd
}

// familyName matches the names of families: no run id, cut or mistyped, looks like one.
var familyName = regexp.MustCompile(`^[a-z][a-z_-]*$`)

// retryOne forks the newest run of a lineage. Flags that select letters are an error.
func retryOne(sh *shell.Shell, cmd *cobra.Command, r *retryFlags, run string) error {
	if err := r.batch.notForOne(cmd); err != nil {
		return err
	}
	return withLetter(sh, cmd, &r.letter, run, func(ctx context.Context, be backend.Backend) error {
		made, err := r.fork(ctx, cmd, be)
		if err != nil {
			return err
		}
		now, err := be.Cases.Run(ctx, made.Run)
		if err != nil {
			return err
		}
		root := made.Run
		if len(now.Parents) > 0 {
			root = now.Parents[0]
		}
		if sh.JSON {
			return sh.Answer(map[string]any{
				"run_id": made.Run, "case_id": made.Case, "root_run_id": root, "state": made.State, "replay_count": now.Replays,
			})
		}
		s := sh.Screen()
		s.Text("The lineage of run %s continues with run %s, and was replayed %s.", root, made.Run, shell.Plural(now.Replays, "time"))
		return s.Err()
	})
}

// fork forks the newest run of a lineage, with --max-retries if that is given. It returns an error if
// marks forbid a retry and force is not set.
func (r *retryFlags) fork(ctx context.Context, cmd *cobra.Command, be backend.Backend) (deadletter.Forked, error) {
	limited := cmd.Flags().Changed("max-retries")
	if limited && r.policy.attempts < 1 {
		return deadletter.Forked{}, shell.Usage(cmd, errors.New("--max-retries must be at least 1"))
	}
	now, err := be.Cases.Run(ctx, r.letter.run)
	if n := len(now.Forks); n > 0 && err == nil {
		now, err = be.Cases.Run(ctx, now.Forks[n-1])
	}
	if err == nil {
		err = checkMarks(ctx, be, now.Run, r.force)
	}
	if err != nil {
		return deadletter.Forked{}, err
	}
	if !limited {
		return be.DeadLetters.Retry(ctx, r.letter.run, r.letter.reason)
	}
	changed := now.Policy
	changed.MaxRetryAttempts = r.policy.attempts
	if err := policy.Check(cmd, changed); err != nil {
		return deadletter.Forked{}, err
	}
	return be.DeadLetters.Fork(ctx, now.Run, deadletter.Fork{Reason: r.letter.reason, Policy: &changed})
}

// retryBatch retries the selected letters by one plan.
func retryBatch(sh *shell.Shell, cmd *cobra.Command, r *retryFlags) error {
	q, err := r.batch.planRequest(cmd, bulk.Fork, r.letter.reason)
	if err == nil && r.force && q.Filter.Reprocess != nil {
		err = shell.Usage(cmd, errors.New("--force and --eligible exclude each other"))
	}
	if err != nil {
		return err
	}
	return r.batch.run(sh, cmd, &r.letter.Flags, q, func(ctx context.Context, be backend.Backend, q *bulk.Request) error {
		if !r.force && q.Filter.Reprocess == nil {
			if err := r.leaveOut(ctx, sh, be, q); err != nil {
				return err
			}
		}
		return r.policy.forks(ctx, cmd, be, q)
	})
}

// leaveOut limits a request to letters that are worth a retry by itself, and says how many others it selects.
func (r *retryFlags) leaveOut(ctx context.Context, sh *shell.Shell, be backend.Backend, q *bulk.Request) error {
	no, yes := false, true
	others := q.Filter
	others.Status, others.Reprocess = background.LetterOpen, &no
	n, err := countLetters(ctx, be, others, q.Where)
	if err != nil {
		return err
	}
	q.Filter.Reprocess, q.All = &yes, false
	if n > 0 {
		r.batch.leftOut = map[refusal.Gate]int64{refusal.GateNotEligible: n}
		sh.Note(shell.Plural(int(n), "letter") + " left out, not worth a retry by itself; --force includes them")
	}
	return nil
}

// countLetters returns how many letters a filter and a condition select.
func countLetters(ctx context.Context, be backend.Backend, f deadletter.Filter, where string) (n int64, err error) {
	if where == "" {
		count, err := be.DeadLetters.Count(ctx, f)
		return count.Total, err
	}
	page := deadletter.Found{}
	for !page.Complete {
		if page, err = be.DeadLetters.Search(ctx, deadletter.Search{Filter: f, Where: where, After: page.Next, Limit: maxLetters}); err != nil {
			return n, err
		}
		n += int64(len(page.Letters))
	}
	return n, nil
}
