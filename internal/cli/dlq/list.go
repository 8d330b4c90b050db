package dlq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// maxLetters is the largest --limit.
const maxLetters = 1000

func list(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var sort, after, where string
	var letters letterFlags
	var limit int
	names := make([]string, len(deadletter.Sorts))
	for i, s := range deadletter.Sorts {
		names[i] = string(s)
	}
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := letters.read()
			if err := errors.Join(err, shell.OneOf("--sort", sort, names...), checkWhere(cmd, where), shell.InRange("--limit", limit, maxLetters)); err != nil {
				return shell.Usage(cmd, err)
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				if where != "" {
					return search(ctx, sh, be, deadletter.Search{Filter: filter, Where: where, Sort: deadletter.Sort(sort), After: after, Limit: limit})
				}
				page, err := be.DeadLetters.List(ctx, deadletter.Query{Filter: filter, Sort: deadletter.Sort(sort), After: after, Limit: limit})
				if err != nil {
					return err
				}
				out := map[string]any{"letters": page.Letters, "next": page.Next, "more": page.More}
				total := "more"
				if filter.ErrorText == "" { // counting by text may have to read every message
					count, err := be.DeadLetters.Count(ctx, filter)
					if err != nil {
						return err
					}
					out["total"], total = count.Total, strconv.FormatInt(count.Total, 10)
				}
				if sh.JSON {
					return sh.Answer(out)
				}
				return showLetters(sh.Screen(), page, total)
			})
		},
	}
	f := cmd.Flags()
	o.Bind(f)
	letters.bind(f)
	whereFlag(f, &where)
	f.StringVar(&sort, "sort", names[0], "order: "+strings.Join(names, ", "))
	f.StringVar(&after, "after", "", "continue after a page: the value of next in its --json output")
	f.IntVar(&limit, "limit", 50, fmt.Sprintf("maximum number to list, 1 to %d", maxLetters))
	return cmd
}

// search lists the letters that meet a CEL condition, and how many letters it scanned.
func search(ctx context.Context, sh *shell.Shell, be backend.Backend, q deadletter.Search) error {
	found, err := be.DeadLetters.Search(ctx, q)
	if err != nil {
		return err
	}
	if sh.JSON {
		return sh.Answer(found)
	}
	s := sh.Screen()
	if err := showLetters(s, deadletter.Page{Letters: found.Letters}, ""); err != nil {
		return err
	}
	s.Text("%s scanned.%s", shell.Plural(found.Scanned, "letter"), view.LeftOut(found.Undecided))
	if !found.Complete {
		s.Text("There may be more: --after %s", found.Next)
	}
	return s.Err()
}

func showLetters(s *screen.Screen, page deadletter.Page, total string) error {
	if len(page.Letters) == 0 {
		s.Text("No dead letters.")
		return s.Err()
	}
	rows := make([][]string, len(page.Letters))
	for i, l := range page.Letters {
		why, risk, may := l.ReasonCode, "-", "fork"
		switch {
		case l.Error != nil && l.ReasonCode == background.ReasonRetryExhausted:
			why = l.Error.Type // the reason of most letters
		case l.Error != nil:
			why += ": " + l.Error.Type
		}
		if l.AtRisk != nil {
			risk = l.AtRisk.String()
		}
		if !l.CanFork {
			may = string(l.RefusedBy)
		}
		if l.Status != background.LetterOpen {
			may = string(l.Status) // more useful than the gate that refuses a second fork
		}
		if l.Held {
			may += ", held"
		}
		rows[i] = []string{l.DeadAt.UTC().Format("2006-01-02 15:04:05"), l.Run.String(), l.Transaction, string(l.Outcome), risk, why, string(l.Class), may}
	}
	s.Table([]screen.Column{{Name: "Died (UTC)"}, {Name: "Run"}, {Name: "Transaction"}, {Name: "Outcome", Optional: true}, {Name: "At risk", Right: true},
		{Name: "Reason", Wraps: true}, {Name: "Class"}, {Name: "Action", Wraps: true}}, rows)
	if page.More {
		s.Text("%d of %s: narrow the filter, raise --limit, or continue with --after %s", len(page.Letters), total, page.Next)
	}
	return s.Err()
}
