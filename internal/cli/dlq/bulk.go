package dlq

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/history"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
)

func bulkCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bulk", Short: "Apply one action to many dead letters: plan, review, run", Args: shell.UnknownCommand,
		Long: `Apply one action to many dead letters. "plan" stores the selected letters and shows how
many there are, how much money they have reserved, and how many would be refused now. "run"
shows the plan on a terminal and asks; elsewhere, and with --yes, it takes the hash of the
plan, which shows that you reviewed it. A running recourse serve does
the work, ten letters at once by default. With --here, which only a purge takes, "run" does
the work itself. The work survives restarts, acts on no letter twice, and skips letters that
changed since the plan was made. A plan that forks or purges settlements, records that money
moved, or frees reserved money must be run by another person than its planner
(recourse people), who can refuse it instead.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(bulkPlan(sh), bulkRun(sh), bulkShow(sh), bulkItems(sh), bulkList(sh),
		bulkChange(sh, "pause", "Pause a running plan within a second", backend.Bulk.Pause), bulkChange(sh, "resume", "Resume a paused plan", backend.Bulk.Resume), bulkChange(sh, "cancel", "Cancel a plan for good; what was done stays done", backend.Bulk.Cancel),
		bulkChange(sh, "refuse", "Refuse a plan of somebody else that nobody has started", backend.Bulk.Refuse),
		history.Command(sh, postadjudication.OperationLogBulks, "List which plans were made, started, paused, resumed, cancelled and refused, by whom, from the receipts"))
	return cmd
}

func bulkPlan(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var b bulkFlags
	var p retryLimit
	var reason, eligible, review string
	actions := make([]string, len(bulk.Actions))
	for i, a := range bulk.Actions {
		actions[i] = string(a)
	}
	cmd := &cobra.Command{
		Use: "plan ACTION", Short: "Plan an action for selected letters: " + strings.Join(actions, ", "), Args: shell.Exactly("ACTION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := b.request(cmd, reason)
			if err == nil && !q.All && !b.selects(q.Filter) {
				err = shell.Usage(cmd, errors.New("a filter or --all is required"))
			}
			if err != nil {
				return err
			}
			q.Action = bulk.Action(args[0])
			if err := errors.Join(shell.OneOf("ACTION", args[0], actions...), parseTriState("--set-eligible", eligible, &q.Reprocess), parseTriState("--set-review", review, &q.Review)); err != nil {
				return shell.Usage(cmd, err)
			}
			switch marks := q.Reprocess != nil || q.Review != nil; {
			case marks && q.Action != bulk.Mark:
				return shell.Usage(cmd, errors.New("--set-eligible and --set-review are for the action mark"))
			case !marks && q.Action == bulk.Mark:
				return shell.Usage(cmd, errors.New("--set-eligible or --set-review is required, with or without =false"))
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				if err := p.forks(ctx, cmd, be, &q); err != nil {
					return err
				}
				plan, err := be.Bulk.Plan(ctx, q)
				if err != nil {
					return err
				}
				return cmp.Or(backend.AnswerPlan(sh, &o, plan), refusedError(&o, plan))
			})
		},
	}
	f := cmd.Flags()
	o.BindActor(f)
	b.bind(f)
	f.StringVar(&reason, "reason", "", "reason to record (required)")
	f.StringVar(&b.q.Queue, "to-queue", "", "for fork: another queue of the family, such as settlement:1")
	f.IntVar(&p.attempts, "max-retries", 0, "for fork: maximum attempts of each new run, including the first (0: as the dead letter had)")
	triStateFlag(f, &eligible, "set-eligible", "for mark: as worth a retry by itself", "as not worth one")
	triStateFlag(f, &review, "set-review", "for mark: as needing review by a person", "as needing none")
	return cmd
}

// planCommand is a command on one plan.
func planCommand(sh *shell.Shell, o *backend.Flags, use, short string, acts bool, work func(ctx context.Context, o *backend.Flags, be backend.Backend, id uuid.UUID) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: shell.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := uuid.Parse(args[0])
			if err != nil || len(args[0]) != 36 {
				return shell.Usage(cmd, errors.New("PLAN is not a plan id: "+args[0]))
			}
			return backend.With(sh, cmd, o, func(ctx context.Context, be backend.Backend) error {
				return o.NotFound(work(ctx, o, be, id), "plan "+args[0])
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
func bulkChange(sh *shell.Shell, verb, short string, change func(backend.Bulk, context.Context, uuid.UUID, string) (bulk.Plan, error)) *cobra.Command {
	var reason string
	cmd := planCommand(sh, new(backend.Flags), verb+" PLAN", short, true, func(ctx context.Context, o *backend.Flags, be backend.Backend, id uuid.UUID) error {
		b, err := change(be.Bulk, ctx, id, reason)
		if err != nil {
			return err
		}
		return backend.AnswerPlan(sh, o, b)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "reason to record (required)")
	return withCheck(cmd, func(cmd *cobra.Command) error { return shell.NeedReason(cmd, reason) })
}

func bulkShow(sh *shell.Shell) *cobra.Command {
	return planCommand(sh, new(backend.Flags), "show PLAN", "Show a plan and its progress", false, func(ctx context.Context, o *backend.Flags, be backend.Backend, id uuid.UUID) error {
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
	cmd := planCommand(sh, new(backend.Flags), "items PLAN", "List the letters of a plan with their results", false, func(ctx context.Context, _ *backend.Flags, be backend.Backend, id uuid.UUID) error {
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
	f.StringVar(&outcome, "result", "", "only letters with this result: pending, done, refused, refused:<gate>, plan_stale or failed")
	f.StringVar(&after, "after", "", "continue after a page: the value of next in its --json output")
	f.IntVar(&limit, "limit", 50, "maximum number to list, 1 to 1000")
	return cmd
}

func bulkList(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var state, after string
	var mine bool
	states := make([]string, len(bulk.States))
	for i, s := range bulk.States {
		states[i] = string(s)
	}
	cmd := &cobra.Command{
		Use: "list", Short: "List plans, newest first", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := shell.OneOf("--state", state, states...); err != nil {
				return shell.Usage(cmd, err)
			}
			if state == "" && cmd.Flags().Changed("state") {
				return shell.Usage(cmd, errors.New("--state is empty; leave it out"))
			}
			if mine && o.Server == "" && o.Actor == "" {
				return shell.Usage(cmd, errors.New("--waiting-for-me needs --actor"))
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				page, err := be.Bulk.List(ctx, bulk.Filter{State: bulk.State(state), WaitingForMe: mine}, after)
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
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	shell.ActorFlag(local, &o.Actor, "for whom --waiting-for-me lists plans, such as user:ada (with --server the key's principal)")
	o.BindLocal(cmd.Flags(), local)
	cmd.Flags().BoolVar(&mine, "waiting-for-me", false, "only plans that nobody has started and that you may run")
	cmd.Flags().StringVar(&state, "state", "", "only plans in this state: "+strings.Join(states, ", "))
	cmd.Flags().StringVar(&after, "after", "", "continue after a page: the value of next in its --json output")
	return cmd
}
