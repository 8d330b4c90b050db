package dlq

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

func rulesHistory(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use: "history NAME", Short: "List the changes of a rule, from their receipts", Args: shell.Exactly("NAME"),
		Long: `List the changes of a rule, from their receipts, the first one first. A rule that was
deleted and made again goes on with its versions.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ruleName(cmd, args[0]); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Rules.History(ctx, args[0], after, limit)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"versions": append([]postadjudication.RuleVersion{}, found...)})
				}
				return showRuleHistory(sh.Screen(), args[0], found)
			})
		},
	}
	o.Bind(cmd.Flags())
	cmd.Flags().Int64Var(&after, "after", 0, "after this version")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many")
	return cmd
}

func showRuleHistory(s *screen.Screen, name string, versions []postadjudication.RuleVersion) error {
	if len(versions) == 0 {
		s.Text("Nobody has made a rule %s.", name)
		return s.Err()
	}
	rows := make([][]string, len(versions))
	for i, v := range versions {
		rows[i] = []string{strconv.FormatInt(v.Version, 10), v.At.Format(time.RFC3339), v.Actor, v.Changes, v.Reason}
	}
	s.Table([]screen.Column{{Name: "#", Right: true}, {Name: "At"}, {Name: "By"}, {Name: "What", Wraps: true}, {Name: "Why", Wraps: true}}, rows)
	return s.Err()
}
