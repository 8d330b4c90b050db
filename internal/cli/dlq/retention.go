package dlq

import (
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

func retentionCommand(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "retention", Short: "Show how long dead letters are kept", Args: shell.Exactly(),
		Long: `Show how long open dead letters are kept, by family and queue, and whether they are archived
afterwards. Retention is configuration: a server takes it from its flags --retain and
--archive at start. Use --server to read it from a server. Without --server the command
shows what the given flags mean, or the defaults.

  recourse dlq retention --server https://recourse.example:8321
  recourse dlq retention --tenant acme --retain settlement=P90D --retain settlement:0=P30D/10000`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				kept, err := be.DeadLetters.Retention(ctx)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"retention": kept})
				}
				return showRetention(sh.Screen(), o.Server, kept)
			})
		},
	}
	f := cmd.Flags()
	o.Bind(f)
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.BindRetention(local)
	o.BindLocal(f, local)
	return cmd
}

// jobFamily is the family of jobs, of whose letters the newest of each queue are kept.
const jobFamily = "ojs"

func showRetention(s *screen.Screen, server string, kept []retention.Effective) error {
	rows := make([][]string, len(kept))
	for i, k := range kept {
		queue, most, then := "all", "unlimited", "archived"
		switch named := func(other retention.Effective) bool { return other.Family == k.Family && other.Queue != "" }; {
		case k.Queue != "":
			queue = k.Queue
		case slices.ContainsFunc(kept, named):
			queue = "all others"
		}
		switch {
		case k.MaxCount > 0 && k.Family == jobFamily:
			most = strconv.Itoa(k.MaxCount) + " of each queue of a tenant"
		case k.MaxCount > 0:
			most = strconv.Itoa(k.MaxCount) + " of each tenant"
		}
		switch {
		case k.Archived:
		case k.Family == postadjudication.Family:
			then = "kept: no archive is configured"
		default:
			then = "removed: no archive is configured"
		}
		rows[i] = []string{k.Family, queue, k.MaxAge.String(), most, then}
	}
	s.Table([]screen.Column{{Name: "Family"}, {Name: "Queue"}, {Name: "Kept for"}, {Name: "At most"}, {Name: "Then", Wraps: true}}, rows)
	if server == "" {
		s.Text("This is the meaning of the flags given here. Use --server for the retention of a server.")
	}
	return s.Err()
}
