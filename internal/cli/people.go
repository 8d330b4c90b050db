package cli

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

func peopleCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "people", Short: "How many people it takes to state or free money by hand", Args: shell.UnknownCommand,
		Long: `How many people it takes to state or free money of a tenant by hand: to record a finding
that it was moved, to purge settlements, to let a plan run that forks or purges them, and
to free what is reserved. Two, unless an admin sets one: each receipt of what one person did
says so then.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(peopleShow(sh), peopleSet(sh), peopleHistory(sh))
	return cmd
}

func peopleShow(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "show", Short: "Tell how many it takes", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				now, err := be.People.Get(ctx)
				if err != nil {
					return err
				}
				return answerPeople(sh, now)
			})
		},
	}
	o.Bind(cmd.Flags())
	return cmd
}

func peopleSet(sh *shell.Shell) *cobra.Command {
	var o backend.ChangeFlags
	cmd := &cobra.Command{
		Use: "set 1|2", Short: "Set how many it takes", Args: shell.Exactly("1 or 2"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil || n < 1 || n > 2 {
				return shell.Usage(cmd, errors.New("it takes 1 or 2, not "+args[0]))
			}
			if err := o.Check(cmd); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o.Flags, func(ctx context.Context, be backend.Backend) error {
				now, err := be.People.Set(ctx, postadjudication.PeopleChange{People: n, Reason: o.Reason})
				if err != nil {
					return err
				}
				return answerPeople(sh, now)
			})
		},
	}
	o.Bind(cmd)
	return cmd
}

func answerPeople(sh *shell.Shell, now postadjudication.People) error {
	if sh.JSON {
		return sh.Answer(now)
	}
	s := sh.Screen()
	if now.At == nil {
		s.Text("It takes %d. Nobody has set it.", now.People)
		return s.Err()
	}
	s.Text("It takes %d, set by %s at %s: %s", now.People, now.Actor, now.At.Format(time.RFC3339), now.Reason)
	return s.Err()
}

func peopleHistory(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use: "history", Short: "List the changes of it, from their receipts", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.People.History(ctx, after, limit)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"versions": append([]postadjudication.PeopleVersion{}, found...)})
				}
				s := sh.Screen()
				if len(found) == 0 {
					s.Text("Nobody has set it: it takes 2.")
					return s.Err()
				}
				rows := make([][]string, len(found))
				for i, v := range found {
					rows[i] = []string{v.At.Format(time.RFC3339), strconv.Itoa(v.People.People), v.Actor, v.Reason, v.Receipt}
				}
				s.Table([]screen.Column{{Name: "At"}, {Name: "People", Right: true}, {Name: "By"}, {Name: "Why", Wraps: true}, {Name: "Receipt", Optional: true}}, rows)
				return s.Err()
			})
		},
	}
	f := cmd.Flags()
	o.Bind(f)
	f.Int64Var(&after, "after", 0, "after this sequence number")
	f.IntVar(&limit, "limit", 100, "at most this many")
	return cmd
}
