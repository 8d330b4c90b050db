package dlq

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/history"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication"
)

func bulk(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bulk", Short: "Do one thing with many dead letters: plan it, look at the plan, let it run", Args: shell.UnknownCommand,
		Long: `Do one thing with many dead letters. "plan" stores which letters are meant and says how
many they are, what money is in them and what would be refused now; "run" takes the
plan's hash, which says that you have seen that. A running server does the work, ten
letters at once; it survives restarts, acts on no letter twice, and leaves alone what
somebody else has moved since the plan was made. A plan that forks or purges settlements,
states that money was moved, or frees what is reserved is run by somebody else than who
made it (recourse people).`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(bulkPlan(sh), bulkRun(sh), bulkShow(sh), bulkItems(sh), bulkList(sh),
		bulkChange(sh, "pause", "Let a running plan stop within a second", backend.Bulk.Pause), bulkChange(sh, "resume", "Let a paused plan go on", backend.Bulk.Resume), bulkChange(sh, "cancel", "End a plan for good; what was done stays done", backend.Bulk.Cancel),
		history.Command(sh, postadjudication.OperationLogBulks, "List who made, started, paused, resumed and cancelled which plan, from the receipts"))
	return cmd
}

func bulkPlan(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var b bulkFlags
	var p retryLimit
	var reason, eligible, review string
	actions := make([]string, len(postadjudication.BulkActions))
	for i, a := range postadjudication.BulkActions {
		actions[i] = string(a)
	}
	cmd := &cobra.Command{
		Use: "plan ACTION", Short: "Plan " + strings.Join(actions, ", ") + " for the letters that a filter selects", Args: shell.Exactly("ACTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := b.request(cmd, reason)
			if err == nil && !q.All && !b.selects(q.Filter) {
				err = shell.Usage(cmd, errors.New("a filter or --all is needed"))
			}
			if err != nil {
				return err
			}
			q.Action = postadjudication.BulkAction(args[0])
			if err := errors.Join(shell.OneOf("ACTION", args[0], actions...), parseTriState("--set-eligible", eligible, &q.Reprocess), parseTriState("--set-review", review, &q.Review)); err != nil {
				return shell.Usage(cmd, err)
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				if err := p.forks(ctx, cmd, be, &q); err != nil {
					return err
				}
				plan, err := be.Bulk.Plan(ctx, q)
				if err != nil {
					return err
				}
				return backend.AnswerPlan(sh, &o, plan)
			})
		},
	}
	f := cmd.Flags()
	o.BindActor(f)
	b.bind(f)
	f.StringVar(&reason, "reason", "", "why (required)")
	f.StringVar(&b.q.Queue, "to-queue", "", "of forks: another queue of the family, such as settlement:1")
	f.IntVar(&p.attempts, "max-retries", 0, "of forks: attempts in all of each new run (0: as the letter's)")
	triStateFlag(f, &eligible, "set-eligible", "of marks: worth another try", "not worth one")
	triStateFlag(f, &review, "set-review", "of marks: a person should look first", "nobody needs to")
	return cmd
}

// planCommand is a command about one plan.
func planCommand(sh *shell.Shell, use, short string, acts bool, work func(ctx context.Context, o *backend.Flags, be backend.Backend, id uuid.UUID) error) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: use, Short: short, Args: shell.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := uuid.Parse(args[0])
			if err != nil || len(args[0]) != 36 {
				return shell.Usage(cmd, errors.New("PLAN is no id of a plan: "+args[0]))
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				return o.NotFound(work(ctx, &o, be, id), "plan "+args[0])
			})
		},
	}
	if acts {
		o.BindActor(cmd.Flags())
	} else {
		o.Bind(cmd.Flags())
	}
	return cmd
}

// withCheck adds a check of the flags to a command.
func withCheck(cmd *cobra.Command, check func(cmd *cobra.Command) error) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// bulkChange is a command that changes whether a plan runs.
func bulkChange(sh *shell.Shell, verb, short string, change func(backend.Bulk, context.Context, uuid.UUID, string) (postadjudication.Bulk, error)) *cobra.Command {
	var reason string
	cmd := planCommand(sh, verb+" PLAN", short, true, func(ctx context.Context, o *backend.Flags, be backend.Backend, id uuid.UUID) error {
		b, err := change(be.Bulk, ctx, id, reason)
		if err != nil {
			return err
		}
		return backend.AnswerPlan(sh, o, b)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why (required)")
	return withCheck(cmd, func(cmd *cobra.Command) error { return shell.NeedReason(cmd, reason) })
}

func bulkShow(sh *shell.Shell) *cobra.Command {
	return planCommand(sh, "show PLAN", "Tell of a plan, and how far it has got", false, func(ctx context.Context, o *backend.Flags, be backend.Backend, id uuid.UUID) error {
		b, err := be.Bulk.Get(ctx, id)
		if err != nil {
			return err
		}
		return backend.AnswerPlan(sh, o, b)
	})
}

func bulkItems(sh *shell.Shell) *cobra.Command {
	var outcome, after string
	var limit int
	cmd := planCommand(sh, "items PLAN", "List the letters of a plan, and what became of each", false, func(ctx context.Context, _ *backend.Flags, be backend.Backend, id uuid.UUID) error {
		page, err := be.Bulk.Items(ctx, id, outcome, after, limit)
		if err != nil {
			return err
		}
		if sh.JSON {
			return sh.Answer(page)
		}
		return view.PlanItems(sh.Screen(), page)
	})
	f := cmd.Flags()
	f.StringVar(&outcome, "result", "", "only pending, done, refused, refused:<gate>, plan_stale or failed")
	f.StringVar(&after, "after", "", "go on behind a page: its next, as --json shows it")
	f.IntVar(&limit, "limit", 50, "at most this many, 1 to 1000")
	return cmd
}

func bulkList(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var after string
	cmd := &cobra.Command{
		Use: "list", Short: "List plans, the newest first", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				page, err := be.Bulk.List(ctx, after)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(page)
				}
				return view.Plans(sh.Screen(), page)
			})
		},
	}
	o.Bind(cmd.Flags())
	cmd.Flags().StringVar(&after, "after", "", "go on behind a page: its next, as --json shows it")
	return cmd
}
