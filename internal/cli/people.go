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
		Use: "people", Short: "Show or set how many people a manual money decision takes", Args: shell.UnknownCommand,
		Long: `Show or set how many people a manual money decision of a tenant takes. These decisions
are: to record that money moved, to purge dead letters of settlements, to run a plan that
forks or purges them, to free reserved money, to permit another target for a case, and to
lower this number. The number is two unless two people set it to one. Each receipt of such
a decision then records people: 1.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(peopleShow(sh), peopleSet(sh), peopleHistory(sh))
	return cmd
}

func peopleShow(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "show", Short: "Show the number of people", Args: shell.Exactly(),
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
		Use: "set 1|2", Short: "Set the number of people; to lower it makes a plan that another person runs", Args: shell.Exactly("1 or 2"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil || n < 1 || n > 2 {
				return shell.Usage(cmd, errors.New("the number of people must be 1 or 2, not "+args[0]))
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
		s.Text("People: %d (default).", now.People)
		return s.Err()
	}
	s.Text("People: %d, set by %s at %s: %s", now.People, now.Actor, now.At.Format(time.RFC3339), now.Reason)
	return s.Err()
}

func peopleHistory(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use: "history", Short: "List the changes of the number of people, from the receipts", Args: shell.Exactly(),
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
					s.Text("The number of people was never set: it is 2.")
					return s.Err()
				}
				rows := make([][]string, len(found))
				for i, v := range found {
					by := v.Actor
					if v.PlannedBy != "" {
						by += ", planned by " + v.PlannedBy
					}
					rows[i] = []string{v.At.Format(time.RFC3339), strconv.Itoa(v.People.People), by, v.Reason, v.Receipt}
				}
				s.Table([]screen.Column{{Name: "At"}, {Name: "People", Right: true}, {Name: "By"}, {Name: "Why", Wraps: true}, {Name: "Receipt", Optional: true}}, rows)
				return s.Err()
			})
		},
	}
	f := cmd.Flags()
	o.Bind(f)
	f.Int64Var(&after, "after", 0, "list only entries after this sequence number")
	f.IntVar(&limit, "limit", 100, "maximum number to list")
	return cmd
}
