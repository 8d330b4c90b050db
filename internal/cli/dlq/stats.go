package dlq

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
)

func stats(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var letters letterFlags
	cmd := &cobra.Command{
		Use: "stats", Short: "Count dead letters by status, age and error, with the money at risk", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := letters.read()
			if err != nil {
				return shell.Usage(cmd, err)
			}
			if !cmd.Flags().Changed("status") {
				filter.Status = "" // the counts are by status
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.DeadLetters.Stats(ctx, filter)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(found)
				}
				return showStats(sh.Screen(), found)
			})
		},
	}
	o.Bind(cmd.Flags())
	letters.bind(cmd.Flags())
	return cmd
}

func showStats(s *screen.Screen, st report.Stats) error {
	rows := [][]string{{"dead letters", strconv.FormatInt(st.Letters, 10)}}
	for _, status := range slices.Sorted(maps.Keys(st.ByStatus)) {
		rows = append(rows, []string{string(status), strconv.FormatInt(st.ByStatus[status], 10)})
	}
	rows = append(rows,
		[]string{"at risk", shell.Amounts(st.AtRisk)}, []string{"average attempts", fmt.Sprintf("%.1f", st.Attempts)},
		[]string{"worth a retry by itself", strconv.FormatInt(st.Reprocess, 10)}, []string{"needing review", strconv.FormatInt(st.Review, 10)},
		[]string{"held", strconv.FormatInt(st.Held, 10)}, []string{"expiring within 7 days", strconv.FormatInt(st.Expiring, 10)},
		[]string{"died in the last hour, day", fmt.Sprintf("%d, %d", st.DiedLastHour, st.DiedLastDay)})
	if st.Oldest != nil {
		rows = append(rows, []string{"oldest open", fmt.Sprintf("died %s ago: run %s", shell.Span(st.Oldest.Age.String()), st.Oldest.Run)})
	}
	s.Table([]screen.Column{{Name: "About"}, {Name: "Now", Wraps: true}}, rows)
	showShares(s, "Open, by outcome class", st.ByClass)
	showShares(s, "Open, by error", st.ByError)
	s.Title("Open, by age")
	rows = nil
	for _, b := range st.Ages {
		to := "and more"
		if b.To > 0 {
			to = "to " + shell.Span(b.To.String())
		}
		rows = append(rows, []string{shell.Span(b.From.String()) + " " + to, strconv.FormatInt(b.Letters, 10)})
	}
	s.Table([]screen.Column{{Name: "Age"}, {Name: "Letters", Right: true}}, rows)
	return s.Err()
}
