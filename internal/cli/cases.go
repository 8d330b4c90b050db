package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/settlement"
)

func casesCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cases", Short: "List cases, also those without a dead letter, and free what they have reserved", Args: shell.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(casesList(sh), casesFree(sh))
	return cmd
}

// caseFlags select cases.
type caseFlags struct {
	states      []string
	transaction string
}

func (s *caseFlags) bind(f *pflag.FlagSet) {
	f.StringSliceVar(&s.states, "state", nil, "only those that stand so, such as dispute-ready; several with commas")
	f.StringVar(&s.transaction, "transaction", "", "only the case of this transaction receipt")
}

func (s *caseFlags) filter() postadjudication.CaseFilter {
	return postadjudication.CaseFilter{States: s.states, Transaction: s.transaction}
}

func casesList(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var which caseFlags
	var reserved bool
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List cases, the oldest first: where they stand, their money, why nothing runs", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				f := which.filter()
				f.Reserved = reserved
				page, err := be.Cases.List(ctx, f, after, limit)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(page)
				}
				return showCases(sh.Screen(), page)
			})
		},
	}
	f := cmd.Flags()
	o.Bind(f)
	which.bind(f)
	f.BoolVar(&reserved, "reserved", false, "only those that have something reserved")
	f.StringVar(&after, "after", "", "go on behind a page: its next, as --json shows it")
	f.IntVar(&limit, "limit", 50, "at most this many, 1 to 1000")
	return cmd
}

func showCases(s *screen.Screen, page postadjudication.CasePage) error {
	if len(page.Cases) == 0 {
		s.Text("No such cases.")
		return s.Err()
	}
	rows := make([][]string, len(page.Cases))
	for i, c := range page.Cases {
		money := func(minor int64) string { return settlement.Money{Minor: minor, Currency: c.Currency}.String() }
		waits := c.WaitsFor
		if waits == "" {
			waits = "-"
		}
		rows[i] = []string{c.Transaction, string(c.Progression), money(c.Reserved), money(c.Released + c.Refunded), waits, strings.Join(c.Actions, ", ")}
	}
	s.Table([]screen.Column{{Name: "Transaction"}, {Name: "Stands"}, {Name: "Reserved", Right: true}, {Name: "Moved", Right: true}, {Name: "Waits for"}, {Name: "May", Wraps: true}}, rows)
	for _, currency := range slices.Sorted(maps.Keys(page.Money)) {
		m := page.Money[currency]
		money := func(minor int64) string { return settlement.Money{Minor: minor, Currency: currency}.String() }
		s.Text("%s: %s reserved, %s released, %s refunded.", shell.Plural(int(m.Cases), "case"), money(m.Reserved), money(m.Released), money(m.Refunded))
	}
	if page.More {
		s.Text("There are more: --after %s", page.Next)
	}
	return s.Err()
}

func casesFree(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var which caseFlags
	var reason, reference string
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use: "free", Short: "Plan that what cases have reserved be freed", Args: shell.Exactly(),
		Long: `Plan that what cases have reserved be freed whose money nothing will move any more, as
when a decision is withdrawn. Somebody else lets the plan run. A case is refused while a run
of it is live, while its money is unknown, while a call may be on its way, and while its
letter is held. Then it is review-needed, its open letter is closed, and a higher generation
may begin anew.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := shell.NeedReason(cmd, reason); err != nil {
				return err
			}
			f := which.filter()
			switch selects := len(f.States) > 0 || f.Transaction != ""; {
			case reference == "":
				return shell.Usage(cmd, errors.New("--reference is missing: where it can be checked that nothing will be paid"))
			case limit < 0 || limit > 1000:
				return shell.Usage(cmd, errors.New("--limit must be 1 to 1000"))
			case selects == all:
				return shell.Usage(cmd, errors.New("--transaction, --state or --all is needed"))
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				plan, err := be.Cases.PlanFree(ctx, postadjudication.FreeRequest{Filter: f, All: all, Limit: limit, Reason: reason, Reference: reference})
				if err != nil {
					return o.NotFound(err, "transaction "+f.Transaction)
				}
				return backend.AnswerPlan(sh, &o, plan)
			})
		},
	}
	f := cmd.Flags()
	o.BindActor(f)
	which.bind(f)
	f.BoolVar(&all, "all", false, "all cases that have something reserved")
	f.IntVar(&limit, "limit", 0, "at most this many cases that can be freed, the oldest, 1 to 1000; without it more than 1000 are refused")
	f.StringVar(&reason, "reason", "", "why (required)")
	f.StringVar(&reference, "reference", "", "where it can be checked that nothing will be paid for them (required)")
	return cmd
}
