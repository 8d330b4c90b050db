package dlq

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/policy"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// retryFlags are the flags of a retry: of one job, or of many letters.
type retryFlags struct {
	letter letterCommand
	batch  batchFlags
	policy retryLimit
	force  bool
}

func retry(sh *shell.Shell) *cobra.Command {
	var r retryFlags
	cmd := &cobra.Command{
		Use: "retry [RUN]", Short: "Try a job again by any of its run ids, or many letters at once",
		Long: `Try a job again by any of its run ids: the one it first had, or that of a fork. Its
newest run is forked, if that is an open dead letter, with the policy that it had.
"recourse status" shows what became of each run.

Without RUN all letters are tried that a filter selects (or --all) and that are worth
another try, as one plan: you see it first. --force tries those, too, whose marks, or
whose death, say that it is not worth while; it opens no gate that keeps money.`,
		Args: shell.AtMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return retryBatch(sh, cmd, &r)
			}
			return retryOne(sh, cmd, &r, args[0])
		},
	}
	r.letter.bind(cmd)
	f := cmd.Flags()
	r.batch.bind(cmd)
	f.IntVar(&r.policy.attempts, "max-retries", 0, "attempts in all of each new run (0: as the letter's); of many, all of one family, whose policy it changes")
	forceFlag(cmd, &r.force)
	return cmd
}

// retryOne tries one job again. What selects letters is not for it.
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
		s.Text("Job %s is tried again, by run %s. It was replayed %s.", root, made.Run, shell.Plural(now.Replays, "time"))
		return s.Err()
	})
}

// fork forks the newest run of a job, unless it is marked; with other attempts, when
// they are given.
func (r *retryFlags) fork(ctx context.Context, cmd *cobra.Command, be backend.Backend) (api.Forked, error) {
	other := cmd.Flags().Changed("max-retries")
	if other && r.policy.attempts < 1 {
		return api.Forked{}, shell.Usage(cmd, errors.New("--max-retries must be at least 1"))
	}
	now, err := be.Cases.Run(ctx, r.letter.run)
	if n := len(now.Forks); n > 0 && err == nil {
		now, err = be.Cases.Run(ctx, now.Forks[n-1])
	}
	if err == nil {
		err = checkMarks(ctx, be, now.Run, r.force)
	}
	if err != nil {
		return api.Forked{}, err
	}
	if !other {
		return be.DeadLetters.Retry(ctx, r.letter.run, r.letter.reason)
	}
	changed := now.Policy
	changed.MaxRetryAttempts = r.policy.attempts
	if err := policy.Check(cmd, changed); err != nil {
		return api.Forked{}, err
	}
	return be.DeadLetters.Fork(ctx, now.Run, postadjudication.ForkRequest{Reason: r.letter.reason, Policy: &changed})
}

// retryBatch tries the letters that are selected again.
func retryBatch(sh *shell.Shell, cmd *cobra.Command, r *retryFlags) error {
	q, err := r.batch.planRequest(cmd, postadjudication.BulkFork, r.letter.reason)
	if err == nil {
		err = r.batch.excludeIneligible(cmd, &q, r.force)
	}
	if err != nil {
		return err
	}
	return r.batch.run(sh, cmd, &r.letter.Flags, q, func(ctx context.Context, be backend.Backend, q *postadjudication.BulkRequest) error {
		return r.policy.forks(ctx, cmd, be, q)
	})
}
