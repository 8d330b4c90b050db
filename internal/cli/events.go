package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// eventFlags select events.
type eventFlags struct {
	backend.Flags
	after  int64
	limit  int
	follow bool
}

func eventsCommand(sh *shell.Shell) *cobra.Command {
	var w eventFlags
	cmd := &cobra.Command{
		Use: "events", Short: "Read the events of a tenant's runs, in order", Args: shell.Exactly(),
		Long: `Read the events of a tenant's runs, in order. Every event has a position. Pass the last
position to --after to continue without a gap or a duplicate.

--follow waits for new events until interrupted; --json then writes one object a line.
New events appear only while a recourse serve process is running.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.checkRange(cmd); err != nil {
				return err
			}
			return backend.With(sh, cmd, &w.Flags, func(ctx context.Context, be backend.Backend) error {
				if w.follow {
					return followEvents(ctx, sh, be.Events, w)
				}
				return listEvents(ctx, sh, be.Events, w)
			})
		},
	}
	f := cmd.Flags()
	w.Bind(f)
	f.Int64Var(&w.after, "after", 0, "list only events after this position")
	f.IntVar(&w.limit, "limit", 100, fmt.Sprintf("maximum number to list, up to %d; not with --follow", postadjudication.MaxEvents))
	f.BoolVar(&w.follow, "follow", false, "wait for new events until interrupted")
	return cmd
}

func (w *eventFlags) checkRange(cmd *cobra.Command) error {
	switch {
	case w.limit < 1 || w.limit > postadjudication.MaxEvents:
		return shell.Usage(cmd, fmt.Errorf("--limit is not between 1 and %d", postadjudication.MaxEvents))
	case w.follow && cmd.Flags().Changed("limit"):
		return shell.Usage(cmd, errors.New("--limit and --follow exclude each other"))
	case w.after < 0:
		return shell.Usage(cmd, errors.New("--after is negative"))
	}
	return nil
}

// eventsAnswer is the JSON result of events. Next is the --after of the next call.
type eventsAnswer struct {
	Events []postadjudication.Event  `json:"events"`
	Next   postadjudication.Position `json:"next"`
}

func listEvents(ctx context.Context, sh *shell.Shell, from backend.Events, w eventFlags) error {
	events, next, err := from.List(ctx, postadjudication.Position(w.after), w.limit)
	if err != nil {
		return err
	}
	if sh.JSON {
		return sh.Answer(eventsAnswer{append([]postadjudication.Event{}, events...), next})
	}
	s := sh.Screen()
	rows := make([][]string, len(events))
	for i, e := range events {
		rows[i] = []string{strconv.FormatInt(int64(e.Position), 10), shell.Timestamp(e.At), string(e.Type), e.Run.String(), eventSummary(e)}
	}
	s.Table([]screen.Column{
		{Name: "Position", Right: true}, {Name: "Time (UTC)", Optional: true}, {Name: "Event"}, {Name: "Run"}, {Name: "What", Wraps: true},
	}, rows)
	if len(events) == w.limit {
		s.Text("There may be more: --after %d", next)
	}
	return s.Err()
}

// followEvents writes events as they arrive. It returns nil when ctx ends.
func followEvents(ctx context.Context, sh *shell.Shell, from backend.Events, w eventFlags) error {
	sh.Answering()
	next := from.Follow(postadjudication.Position(w.after))
	for ctx.Err() == nil {
		events, err := next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := eventLine(sh, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func eventLine(sh *shell.Shell, e postadjudication.Event) error {
	if sh.JSON {
		return sh.Encode(e)
	}
	line := strings.TrimSpace(fmt.Sprintf("%d  %s  %s  %-18s %s", e.Position, shell.Timestamp(e.At), e.Run, e.Type, eventSummary(e)))
	_, err := fmt.Fprintln(sh.Out, screen.Plain(line))
	return err
}

// eventSummary returns the particulars of an event for people, separated by commas.
func eventSummary(e postadjudication.Event) string {
	d := e.Data
	var words []string
	add := func(format string, value any, given bool) {
		if given {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add("attempt %d", d.Attempt, d.Attempt > 0)
	add("attempts %d", d.Attempts, d.Attempts > 0)
	add("%s", d.RetryKey, d.RetryKey != "")
	add("%s", d.Reason, d.Reason != "")
	if d.Error != nil && d.Reason == "" {
		words = append(words, d.Error.Code)
	}
	add("known: %s", d.OutcomeClass, d.OutcomeClass != "")
	add("moved %d in minor units", d.Moved, d.Moved > 0)
	add("returned %d in minor units", d.Returned, d.Returned > 0)
	add("found %s", d.Finding, d.Finding != "")
	add("fork %s", d.NewRunID, !d.NewRunID.IsZero())
	add("excess %d in minor units", d.Excess, d.Excess > 0)
	add("by %s", d.CancelledBy, d.CancelledBy != "")
	add("case %s", d.SettlementStatus, d.SettlementStatus != "")
	return strings.Join(words, ", ")
}
