package dlq

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

func rulesCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rules", Short: "List, test and change the rules of automatic replay", Args: shell.UnknownCommand,
		Long: `List, test and change the rules of automatic replay. By default there are none. A rule
replays only letters that are known to be not executed, never a held letter, and a letter
with its forks at most max_replays times. A rule with "mark" marks letters instead. A rule is
one JSON object:

  {"name":"night","enabled":true,"filter":{"error_type":"http.refused"},"delay":"PT8H","max_replays":2}`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(rulesList(sh), rulesTry(sh), rulesSet(sh), rulesDelete(sh), rulesHistory(sh))
	return cmd
}

func rulesList(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "list", Short: "List the rules", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Rules.List(ctx)
				if err != nil {
					return err
				}
				return answerRules(sh, found, map[string]any{"rules": append([]replay.StoredRule{}, found...)})
			})
		},
	}
	o.Bind(cmd.Flags())
	return cmd
}

// readRule reads a rule from a file, or from standard input.
func readRule(sh *shell.Shell, name string) (rule replay.Rule, err error) {
	from, err := sh.Open(name)
	if err != nil {
		return rule, err
	}
	defer from.Close() // only read from
	text, err := io.ReadAll(io.LimitReader(from, 1<<20))
	if err != nil {
		return rule, err
	}
	return replay.Parse(text)
}

func rulesTry(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "try FILE", Short: "Show what a rule would replay now, and change nothing", Args: shell.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rule, err := readRule(sh, args[0])
			if err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				trial, err := be.Rules.Try(ctx, rule)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(trial)
				}
				s := sh.Screen()
				s.Text("%s; of the %d oldest the rule would take %d now, with %s reserved.", matchText(trial.Matched), trial.Scanned, trial.Ready, shell.Amounts(trial.Money))
				return s.Err()
			})
		},
	}
	o.Bind(cmd.Flags())
	return cmd
}

func matchText(n int64) string {
	if n == 1 {
		return "1 letter matches"
	}
	return strconv.FormatInt(n, 10) + " letters match"
}

// ruleChangeFlags are the flags of a change of a rule.
type ruleChangeFlags struct {
	backend.Flags
	reason  string
	version int64
}

func (r *ruleChangeFlags) bind(cmd *cobra.Command, ifVersion string) {
	r.BindActor(cmd.Flags())
	cmd.Flags().StringVar(&r.reason, "reason", "", "reason to record (required)")
	cmd.Flags().Int64Var(&r.version, "if-version", 0, ifVersion)
}

// expected returns --if-version; nil if it is not given.
func (r *ruleChangeFlags) expected(cmd *cobra.Command) *int64 {
	if !cmd.Flags().Changed("if-version") {
		return nil
	}
	return &r.version
}

func rulesSet(sh *shell.Shell) *cobra.Command {
	var r ruleChangeFlags
	cmd := &cobra.Command{
		Use: "set FILE", Short: "Create or replace a rule", Args: shell.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := shell.NeedReason(cmd, r.reason); err != nil {
				return err
			}
			rule, err := readRule(sh, args[0])
			if err != nil {
				return err
			}
			return backend.With(sh, cmd, &r.Flags, func(ctx context.Context, be backend.Backend) error {
				set, err := be.Rules.Set(ctx, replay.Change{Rule: rule, Reason: r.reason, IfVersion: r.expected(cmd)})
				if err != nil {
					return err
				}
				return answerRules(sh, []replay.StoredRule{set}, set)
			})
		},
	}
	r.bind(cmd, "change only if this is the present version (0: the rule does not exist yet)")
	return cmd
}

func rulesDelete(sh *shell.Shell) *cobra.Command {
	var r ruleChangeFlags
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a rule; its replays stay counted", Args: shell.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := shell.NeedReason(cmd, r.reason); err != nil {
				return err
			}
			if err := ruleName(cmd, args[0]); err != nil {
				return err
			}
			return backend.With(sh, cmd, &r.Flags, func(ctx context.Context, be backend.Backend) error {
				was, err := be.Rules.Delete(ctx, replay.Removal{Name: args[0], Reason: r.reason, IfVersion: r.expected(cmd)})
				if err != nil {
					return r.NotFound(err, "rule "+args[0])
				}
				if !sh.JSON {
					sh.Screen().Text("Rule %s was deleted. It was:", was.Name)
				}
				return answerRules(sh, []replay.StoredRule{was}, was)
			})
		},
	}
	r.bind(cmd, "delete only if this is the present version")
	return cmd
}

// ruleName returns an error for a name that no rule can have, and that would change the path of a
// request to a server.
func ruleName(cmd *cobra.Command, name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/%?#") {
		return shell.Usage(cmd, errors.New("NAME is not the name of a rule: "+name))
	}
	return nil
}

func answerRules(sh *shell.Shell, rules []replay.StoredRule, answer any) error {
	if sh.JSON {
		return sh.Answer(answer)
	}
	s := sh.Screen()
	if len(rules) == 0 {
		s.Text("No rules: nothing is replayed automatically.")
		return s.Err()
	}
	rows := make([][]string, len(rules))
	for i, r := range rules {
		does := "replay, at most " + strconv.Itoa(r.MaxReplays) + " times"
		if r.Mark != nil {
			does = "mark: " + r.Mark.Reason
		}
		filter, err := r.Filter.Encode()
		if err != nil {
			return err
		}
		rows[i] = []string{r.Name, shell.YesNo(r.Enabled), r.Delay, string(filter), does, "version " + strconv.FormatInt(r.Version, 10) + " by " + r.Actor + ": " + r.Reason}
	}
	s.Table([]screen.Column{{Name: "Rule"}, {Name: "On"}, {Name: "After"}, {Name: "Letters", Wraps: true}, {Name: "Does"}, {Name: "Set", Optional: true}}, rows)
	return s.Err()
}

func rulesHistory(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use: "history NAME", Short: "List the changes of a rule, from the receipts", Args: shell.Exactly("NAME"),
		Long: `List the changes of a rule, from the receipts, oldest first. A rule that was deleted and
created again continues its version numbers.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := ruleName(cmd, args[0]); err != nil {
				return err
			}
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Rules.History(ctx, args[0], after, limit)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"versions": append([]replay.Version{}, found...)})
				}
				return showRuleHistory(sh.Screen(), args[0], found)
			})
		},
	}
	o.Bind(cmd.Flags())
	cmd.Flags().Int64Var(&after, "after", 0, "list only entries after this version")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number to list")
	return cmd
}

func showRuleHistory(s *screen.Screen, name string, versions []replay.Version) error {
	if len(versions) == 0 {
		s.Text("There was never a rule %s.", name)
		return s.Err()
	}
	rows := make([][]string, len(versions))
	for i, v := range versions {
		rows[i] = []string{strconv.FormatInt(v.Version, 10), v.At.Format(time.RFC3339), v.Actor, v.Changes, v.Reason}
	}
	s.Table([]screen.Column{{Name: "#", Right: true}, {Name: "At"}, {Name: "By"}, {Name: "What", Wraps: true}, {Name: "Why", Wraps: true}}, rows)
	return s.Err()
}
