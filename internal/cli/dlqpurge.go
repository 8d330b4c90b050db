package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/settlement"
)

// removal are the flags of commands that remove letters.
type removal struct {
	app.Options
	tenant, actor, reason, confirm string
}

func (r *removal) bind(f *pflag.FlagSet, confirm string) {
	r.BindServers(f)
	r.BindArchive(f)
	tenantFlag(f, &r.tenant)
	f.StringVar(&r.actor, "actor", "", "who asks; needed to remove anything")
	f.StringVar(&r.reason, "reason", "", "why; needed to remove anything")
	f.StringVar(&r.confirm, "confirm", "", confirm)
}

func (c *command) dlqPurge() *cobra.Command {
	var r removal
	var letters letterFlags
	cmd := &cobra.Command{
		Use: "purge", Short: "Remove the open dead letters that a filter selects", Args: exactly(),
		Long: `Remove the open dead letters that a filter selects. Without --confirm it only says what
would be removed; with it, it removes exactly as many, or nothing. Held letters and
those of unknown money are never touched; cases, reservations and receipts stay.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := letters.read()
			if err != nil {
				return usage(cmd, err)
			}
			q := postadjudication.PurgeRequest{Actor: r.actor, Reason: r.reason, Filter: filter, Confirm: r.confirm}
			return c.remove(cmd, r,
				func(ctx context.Context, s *postadjudication.Service) (postadjudication.PurgePlan, error) {
					return s.PlanPurge(ctx, r.tenant, q)
				},
				func(ctx context.Context, s *postadjudication.Service) (postadjudication.Purged, error) {
					return s.Purge(ctx, r.tenant, q)
				})
		},
	}
	r.bind(cmd.Flags(), "the number of letters to be removed")
	filters := pflag.NewFlagSet("", pflag.ContinueOnError)
	letters.bind(filters)
	filters.VisitAll(func(f *pflag.Flag) {
		if f.Name == "reason" {
			f.Name = "reason-code" // --reason is why they are removed
		}
		cmd.Flags().AddFlag(f)
	})
	return cmd
}

func (c *command) dlqClear() *cobra.Command {
	var r removal
	var family string
	cmd := &cobra.Command{
		Use: "clear", Short: "Remove all open dead letters of a family", Args: exactly(),
		Long: `Remove all open dead letters of a family of a tenant. Without --confirm it only says
what would be removed. Held letters and those of unknown money are never touched;
cases, reservations and receipts stay.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := postadjudication.ClearRequest{Actor: r.actor, Reason: r.reason, Family: family, Confirm: r.confirm}
			return c.remove(cmd, r,
				func(ctx context.Context, s *postadjudication.Service) (postadjudication.PurgePlan, error) {
					return s.PlanClear(ctx, r.tenant, q)
				},
				func(ctx context.Context, s *postadjudication.Service) (postadjudication.Purged, error) {
					return s.Clear(ctx, r.tenant, q)
				})
		},
	}
	r.bind(cmd.Flags(), "the name of the family")
	cmd.Flags().StringVar(&family, "family", postadjudication.Family, "family whose letters all go")
	return cmd
}

// remove removes letters when that is confirmed, else says what would be removed.
func (c *command) remove(cmd *cobra.Command, r removal, plan func(context.Context, *postadjudication.Service) (postadjudication.PurgePlan, error),
	do func(context.Context, *postadjudication.Service) (postadjudication.Purged, error)) error {
	if r.confirm != "" && (r.actor == "" || r.reason == "") {
		return usage(cmd, errors.New("--actor and --reason are needed"))
	}
	return c.withService(cmd, r.Options, r.tenant, func(ctx context.Context, s *postadjudication.Service) error {
		if r.confirm == "" {
			would, err := plan(ctx, s)
			if err != nil {
				return err
			}
			return c.showPlan(would)
		}
		did, err := do(ctx, s)
		if err != nil {
			return err
		}
		if c.json {
			return c.answer(did)
		}
		out := screen.New(c.Out)
		out.Text("%s removed. Passed by: %d held, %d of unknown money, %d that changed meanwhile.", plural(did.Letters, "letter"), did.Held, did.Unknown, did.MovedOn)
		return out.Err()
	})
}

func (c *command) showPlan(p postadjudication.PurgePlan) error {
	if c.json {
		return c.answer(p)
	}
	var money []string
	for _, currency := range slices.Sorted(maps.Keys(p.Money)) {
		money = append(money, settlement.Money{Minor: p.Money[currency], Currency: currency}.String())
	}
	out := screen.New(c.Out)
	stays := "nothing"
	if len(money) > 0 {
		stays = strings.Join(money, ", ")
	}
	out.Text("%s would be removed, for which %s stays reserved. Nothing was changed: add --confirm.", plural(p.Letters, "letter"), stays)
	out.Text("%d held and %d of unknown money would be passed by.", p.Held, p.Unknown)
	return out.Err()
}
