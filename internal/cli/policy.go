package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func policyCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "Look at retry policies and change them", Args: shell.UnknownCommand,
		Long: `Look at the retry policies of a tenant's families and change them. A change holds
for new runs, in every process within a second; runs that exist keep the policy that
they were submitted with. Each change is a version with a receipt.

With --server a server is asked, with the key in $` + KeyVariable + `; a change takes an admin's.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policyList(sh), policySet(sh), policyReset(sh), policyHistory(sh))
	return cmd
}

func policyList(sh *shell.Shell) *cobra.Command {
	var o office
	cmd := &cobra.Command{
		Use: "list", Short: "List the policies of a tenant's families", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withBackend(sh, cmd, &o, func(ctx context.Context, be Backend) error {
				found, err := be.Policies.List(ctx)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"policies": found})
				}
				return showPolicies(sh.Screen(), found)
			})
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

func showPolicies(s *screen.Screen, policies []postadjudication.FamilyPolicy) error {
	rows := make([][]string, len(policies))
	for i, p := range policies {
		by := "as configured"
		if p.Version > 0 {
			by = fmt.Sprintf("version %d, %s: %s", p.Version, p.Actor, p.Reason)
			if p.AsConfigured {
				by = "as configured again, " + by
			}
		}
		rows[i] = append([]string{p.Family}, append(policyCells(p.Policy), by)...)
	}
	s.Table([]screen.Column{{Name: "Family"}, {Name: "Attempts", Right: true}, {Name: "Delays"}, {Name: "Never again", Wraps: true}, {Name: "Set", Wraps: true}}, rows)
	return s.Err()
}

// policyCells are how often, how fast and what not, for people.
func policyCells(p retrypolicy.Policy) []string {
	delays := fmt.Sprintf("%s x%s up to %s", p.BaseDelay, strconv.FormatFloat(p.Coefficient, 'g', -1, 64), p.MaxDelay)
	if p.Jitter > 0 {
		delays += fmt.Sprintf(", %g%% either way", 100*p.Jitter)
	}
	return []string{strconv.Itoa(p.MaxRetryAttempts), delays, strings.Join(p.NonRetryable, ", ")}
}

func policyHistory(sh *shell.Shell) *cobra.Command {
	var o office
	var family string
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use: "history", Short: "List the changes of a family's policy, from their receipts", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withBackend(sh, cmd, &o, func(ctx context.Context, be Backend) error {
				found, err := be.Policies.History(ctx, family, after, limit)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"versions": append([]postadjudication.PolicyVersion{}, found...)})
				}
				return showPolicyHistory(sh.Screen(), family, found)
			})
		},
	}
	f := cmd.Flags()
	o.bind(f)
	familyFlag(f, &family)
	f.Int64Var(&after, "after", 0, "after this version")
	f.IntVar(&limit, "limit", 100, "at most this many")
	return cmd
}

func familyFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "family", postadjudication.Family, "settlement, or a family of tasks by its name")
}

func showPolicyHistory(s *screen.Screen, family string, versions []postadjudication.PolicyVersion) error {
	if len(versions) == 0 {
		s.Text("The policy of %s was not changed: it is as configured.", family)
		return s.Err()
	}
	rows := make([][]string, len(versions))
	for i, v := range versions {
		rows[i] = []string{strconv.FormatInt(v.Version, 10), v.At.Format(time.RFC3339), v.Actor, v.Changes, v.Reason}
	}
	s.Table([]screen.Column{{Name: "#", Right: true}, {Name: "At"}, {Name: "By"}, {Name: "What", Wraps: true}, {Name: "Why", Wraps: true}}, rows)
	return s.Err()
}
