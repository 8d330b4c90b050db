package cli

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// historyPage are the flags of every history.
type historyPage struct {
	after int64
	limit int
}

func (p *historyPage) bind(f *pflag.FlagSet) {
	f.Int64Var(&p.after, "after", 0, "begin after this sequence number")
	f.IntVar(&p.limit, "limit", 100, "at most this many")
}

func (p *historyPage) check(cmd *cobra.Command) error {
	if p.limit < 1 || p.limit > mostReceipts {
		return shell.Usage(cmd, errors.New("--limit is not between 1 and "+strconv.Itoa(mostReceipts)))
	}
	return nil
}

// history is the command that lists a register.
func history(sh *shell.Shell, of postadjudication.Register, short string) *cobra.Command {
	var o office
	var p historyPage
	cmd := &cobra.Command{
		Use: "history", Short: short, Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(cmd); err != nil {
				return err
			}
			return withBackend(sh, cmd, &o, func(ctx context.Context, be Backend) error {
				found, err := be.Registers.History(ctx, of, p.after, p.limit)
				if err != nil {
					return err
				}
				return showHistory(sh, found, p.limit)
			})
		},
	}
	o.bind(cmd.Flags())
	p.bind(cmd.Flags())
	return cmd
}

// access is about what access keys were refused.
func accessCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "access", Short: "Look at what access keys were refused", Args: shell.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(history(sh, postadjudication.RegisterRefusals, "List who was refused what where no case was named, from the receipts"))
	return cmd
}

func brakeHistory(sh *shell.Shell) *cobra.Command {
	var o app.Options
	var p historyPage
	var tenant, target string
	var all bool
	cmd := &cobra.Command{
		Use: "history", Short: "List the moves of a circuit breaker, from their receipts", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := errors.Join(tenantOrAll(cmd, &tenant, all), p.check(cmd)); err != nil {
				return err
			}
			service, err := openToLook(cmd.Context(), sh, o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			found, err := service.BrakeHistory(cmd.Context(), tenant, target, p.after, p.limit)
			if err != nil {
				return err
			}
			return showHistory(sh, found, p.limit)
		},
	}
	f := cmd.Flags()
	o.BindLook(f)
	tenantOrAllFlags(f, &tenant, &all)
	f.StringVar(&target, "target", postadjudication.DefaultTarget, "the escrow service, or a family of tasks by its name")
	p.bind(f)
	return cmd
}

func showHistory(sh *shell.Shell, found []postadjudication.RegisterEntry, limit int) error {
	if sh.JSON {
		return sh.Answer(map[string]any{"entries": append([]postadjudication.RegisterEntry{}, found...)})
	}
	s := sh.Screen()
	if len(found) == 0 {
		s.Text("There are no receipts of it.")
		return s.Err()
	}
	rows := make([][]string, len(found))
	for i, e := range found {
		what := e.Changes
		if e.RefusedBy != "" {
			what = e.AskedFor + " refused by " + e.RefusedBy
		}
		if e.Bulk != "" {
			what = e.AskedFor + ": " + e.Changes
		}
		rows[i] = []string{strconv.FormatInt(e.Sequence, 10), e.At.Format(time.RFC3339), string(e.Subtype), e.Actor, e.Key + e.Bulk, what, e.Reason}
	}
	s.Table([]screen.Column{{Name: "#", Right: true}, {Name: "At"}, {Name: "Receipt", Spare: true}, {Name: "By"}, {Name: "Key or plan", Spare: true}, {Name: "What", Wraps: true}, {Name: "Why", Spare: true}}, rows)
	if len(found) == limit {
		s.Text("There may be more: --after %d", found[len(found)-1].Sequence)
	}
	return s.Err()
}
