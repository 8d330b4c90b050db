package history

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// maxEntries is the largest --limit.
const maxEntries = 10_000

// Page has the flags of every history command.
type Page struct {
	After int64
	Limit int
}

// Bind defines the flags.
func (p *Page) Bind(f *pflag.FlagSet) {
	f.Int64Var(&p.After, "after", 0, "list only entries after this sequence number")
	f.IntVar(&p.Limit, "limit", 100, "maximum number to list")
}

// Check returns an error for a limit that is out of range.
func (p *Page) Check(cmd *cobra.Command) error {
	if p.Limit < 1 || p.Limit > maxEntries {
		return shell.Usage(cmd, errors.New("--limit is not between 1 and "+strconv.Itoa(maxEntries)))
	}
	return nil
}

// Command returns the command that lists an operation log.
func Command(sh *shell.Shell, of postadjudication.OperationLog, short string) *cobra.Command {
	var o backend.Flags
	var p Page
	cmd := &cobra.Command{
		Use: "history", Short: short, Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.Check(cmd); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.OperationLogs.History(ctx, of, p.After, p.Limit)
				if err != nil {
					return err
				}
				return Answer(sh, found, p.Limit)
			})
		},
	}
	o.Bind(cmd.Flags())
	p.Bind(cmd.Flags())
	return cmd
}

// Answer writes the entries of an operation log.
func Answer(sh *shell.Shell, found []postadjudication.OperationLogEntry, limit int) error {
	if sh.JSON {
		return sh.Answer(map[string]any{"entries": append([]postadjudication.OperationLogEntry{}, found...)})
	}
	s := sh.Screen()
	if len(found) == 0 {
		s.Text("There are no receipts.")
		return s.Err()
	}
	columns := []screen.Column{{Name: "#", Right: true}, {Name: "At"}, {Name: "By", Wraps: true}, {Name: "Target"}, {Name: "Key, plan or webhook", Wraps: true, Optional: true},
		{Name: "What", Wraps: true}, {Name: "Why", Wraps: true, Optional: true}, {Name: "Receipt", Optional: true}}
	const target, subject = 3, 4 // columns
	rows := make([][]string, len(found))
	for i, e := range found {
		what := e.Changes
		if e.RefusedBy != "" {
			what = e.AskedFor + " refused by " + e.RefusedBy
		}
		if (e.Bulk != "" || e.Webhook != "") && e.RefusedBy == "" {
			what = e.AskedFor + ": " + e.Changes
		}
		if e.Incident != "" {
			what += ", by break-glass for " + e.Incident
		}
		rows[i] = []string{strconv.FormatInt(e.Sequence, 10), e.At.Format(time.RFC3339), e.Actor, e.Target, e.Key + e.Bulk + e.Webhook, what, e.Reason, string(e.Subtype)}
	}
	for _, at := range []int{subject, target} { // an empty column would take the place of Why in a narrow terminal
		if slices.ContainsFunc(rows, func(row []string) bool { return row[at] != "" }) {
			continue
		}
		columns = slices.Delete(columns, at, at+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], at, at+1)
		}
	}
	s.Table(columns, rows)
	if len(found) == limit {
		s.Text("There may be more: --after %d", found[len(found)-1].Sequence)
	}
	return s.Err()
}
