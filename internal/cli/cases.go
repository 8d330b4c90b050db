package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

func casesCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cases", Short: "List cases, with or without a dead letter, free their reserved money, and permit another target", Args: shell.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(casesList(sh), casesFree(sh), casesMove(sh))
	return cmd
}

// caseFlags select cases.
type caseFlags struct {
	states        []string
	transaction   string
	withoutLetter bool
}

func (s *caseFlags) bind(f *pflag.FlagSet) {
	f.StringSliceVar(&s.states, "state", nil, "only cases in these states, such as dispute-ready (comma-separated)")
	f.StringVar(&s.transaction, "transaction", "", "only the case of this transaction receipt id")
	f.BoolVar(&s.withoutLetter, "without-letter", false, "only cases with reserved money, but no live run and no open dead letter, which no list of dead letters shows")
}

// check returns an error for an unknown state.
func (s *caseFlags) check(cmd *cobra.Command) error {
	var known []string
	for _, status := range settlement.Statuses[1:] {
		known = append(known, string(status))
	}
	for _, state := range s.states {
		if !slices.Contains(known, state) {
			return shell.Usage(cmd, fmt.Errorf("--state must be one of %s, not %q", strings.Join(known, ", "), state))
		}
	}
	return nil
}

func (s *caseFlags) filter() casestatus.Filter {
	return casestatus.Filter{States: s.states, Transaction: s.transaction, WithoutLetter: s.withoutLetter}
}

func casesList(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var which caseFlags
	var reserved bool
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List cases, oldest first: state, money, why nothing runs", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := which.check(cmd); err != nil {
				return err
			}
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
	f.BoolVar(&reserved, "reserved", false, "only cases with reserved money")
	f.StringVar(&after, "after", "", "continue after a page: the value of next in its --json output")
	f.IntVar(&limit, "limit", 50, "maximum number to list, 1 to 1000")
	return cmd
}

func showCases(s *screen.Screen, page casestatus.Page) error {
	if len(page.Cases) == 0 {
		s.Text("No such cases.")
		return s.Err()
	}
	rows := make([][]string, len(page.Cases))
	for i, c := range page.Cases {
		money := func(minor int64) string { return settlement.Money{Minor: minor, Currency: c.Currency}.String() }
		waits := c.WaitsFor
		switch {
		case waits == "" && c.RunState.Live():
			waits = "its run: " + string(c.RunState) // recourse status says what that waits for
		case waits == "":
			waits = "-"
		}
		rows[i] = []string{c.Transaction, string(c.Progression), money(c.Reserved), money(c.Released + c.Refunded - c.Returned), waits, mayText(c)}
	}
	s.Table([]screen.Column{{Name: "Transaction"}, {Name: "State"}, {Name: "Reserved", Right: true}, {Name: "Moved", Right: true}, {Name: "Waits for", Wraps: true}, {Name: "May", Wraps: true}}, rows)
	for _, currency := range slices.Sorted(maps.Keys(page.Money)) {
		m := page.Money[currency]
		s.Text("%s: %s reserved, %s released, %s refunded%s.", shell.Plural(int(m.Cases), "case"), m.Reserved.In(currency), m.Released.In(currency), m.Refunded.In(currency), view.Returned(m.Returned, currency))
	}
	if page.More {
		s.Text("There are more: --after %s", page.Next)
	}
	return s.Err()
}

// mayText returns the actions that a case allows, for people, and what a finding has to state if not both are taken.
func mayText(c casestatus.Row) string {
	texts := make([]string, len(c.Actions))
	for i, a := range c.Actions {
		if texts[i] = string(a); a == refusal.ActionReconcile && len(c.Findings) == 1 {
			texts[i] += " as " + string(c.Findings[0])
		}
	}
	return strings.Join(texts, ", ")
}

func casesFree(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var which caseFlags
	var reason, reference string
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use: "free", Short: "Plan to free the reserved money of cases", Args: shell.Exactly(),
		Long: `Plan to free the reserved money of cases that will not be paid, such as after a decision
was withdrawn. Another person runs the plan. A case is refused while it has a live run,
while it is unknown whether its money moved, while a call may still be in flight, and
while its dead letter is held. Freeing sets the case to review-needed, closes its open
dead letter, and lets a higher generation start.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(shell.NeedReason(cmd, reason), which.check(cmd)); err != nil {
				return err
			}
			f := which.filter()
			switch selects := len(f.States) > 0 || f.Transaction != "" || f.WithoutLetter; {
			case reference == "":
				return shell.Usage(cmd, errors.New("--reference is missing: the evidence that nothing will be paid"))
			case limit < 0 || limit > 1000:
				return shell.Usage(cmd, errors.New("--limit must be 1 to 1000"))
			case selects == all:
				return shell.Usage(cmd, errors.New("give either --all, or --transaction, --state or --without-letter"))
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				plan, err := be.Cases.PlanFree(ctx, bulk.FreeRequest{Filter: f, All: all, Limit: limit, Reason: reason, Reference: reference})
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
	f.BoolVar(&all, "all", false, "all cases with reserved money")
	f.IntVar(&limit, "limit", 0, "free only the oldest cases that can be freed, 1 to 1000; without it a plan of more than 1000 is refused")
	f.StringVar(&reason, "reason", "", "reason to record (required)")
	f.StringVar(&reference, "reference", "", "where to check that nothing will be paid for these cases, such as a ticket (required)")
	return cmd
}

func casesMove(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var transaction, target, reason string
	var unserved bool
	cmd := &cobra.Command{
		Use: "move", Short: "Plan to permit another target for the next generation of a case", Args: shell.Exactly(),
		Long: `Plan to permit that the next generation of a case names another target than its newest
run has. Another person runs the plan. Without it a submission of such a generation is
refused (target_changed). The plan changes no case, and permits one generation only. A target
that no running process serves is refused, unless --unserved says that one will.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := shell.NeedReason(cmd, reason); err != nil {
				return err
			}
			if transaction == "" || target == "" {
				return shell.Usage(cmd, errors.New("--transaction and --to are required"))
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				plan, err := be.Cases.PlanMove(ctx, bulk.MoveRequest{Transaction: transaction, Target: target, Reason: reason, Unserved: unserved})
				var field *refusal.FieldError
				if errors.As(err, &field) && field.Field == "unserved" {
					return shell.Usage(cmd, fmt.Errorf("no running process serves the target %s: start one that does, check the name, or give --unserved to say that one will", target))
				}
				if err != nil {
					return o.NotFound(err, "transaction "+transaction)
				}
				return backend.AnswerPlan(sh, &o, plan)
			})
		},
	}
	f := cmd.Flags()
	o.BindActor(f)
	f.StringVar(&transaction, "transaction", "", "transaction receipt id of the case (required)")
	f.StringVar(&target, "to", "", "target that the next generation may name, such as escrow or queue:payouts (required)")
	f.StringVar(&reason, "reason", "", "reason to record (required)")
	f.BoolVar(&unserved, "unserved", false, "confirm a target that no running process serves: one will")
	return cmd
}
