package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
)

func (c *command) dlqRetry() *cobra.Command {
	var l onLetter
	cmd := &cobra.Command{
		Use: "retry RUN", Short: "Try a job again by any of its run ids", Args: exactly("RUN"),
		Long: `Try a job again by any of its run ids: the one it first had, or that of a fork. Its
newest run is forked, if that is an open dead letter, with the policy that it had.
"recourse status" shows what became of each run.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := l.check(cmd, args[0]); err != nil {
				return err
			}
			return c.withService(cmd, l.Options, l.tenant, func(ctx context.Context, service *postadjudication.Service) error {
				made, err := service.Retry(ctx, l.tenant, l.run, l.actor, l.reason)
				if err != nil {
					return missing(err, l.tenant, "run "+args[0])
				}
				line, err := service.Lineage(ctx, l.tenant, made.Run)
				if err != nil {
					return err
				}
				if c.json {
					return c.answer(map[string]any{
						"run_id": made.Run, "case_id": made.Case, "root_run_id": line.Root, "state": made.State, "replay_count": line.Replays,
					})
				}
				s := screen.New(c.Out)
				s.Text("Job %s is tried again, by run %s. It was replayed %s.", line.Root, made.Run, plural(line.Replays, "time"))
				return s.Err()
			})
		},
	}
	l.bind(cmd)
	return cmd
}
