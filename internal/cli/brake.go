package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
)

func (c *command) brake() *cobra.Command {
	cmd := &cobra.Command{
		Use: "brake", Short: "Stop and resume the calls of an escrow service", Args: c.noSuch,
		Long: `Stop and resume the calls of an escrow service for a tenant. While its brake is
pulled, what is handed over is accepted and parked: nothing is lost and nothing is
spent. A brake pulls itself when the service fails or hangs, probes it once a second,
and lets the work go step by step once it answers. One that a person pulled stays
until a person releases it.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.brakeList(),
		c.brakeOrder("pull", "Stop calling an escrow service", (*postadjudication.Service).PullBrake),
		c.brakeOrder("release", "Let the parked work of an escrow service go, step by step; twice: at once", (*postadjudication.Service).ReleaseBrake))
	return cmd
}

// brakesListed is the answer of brake list.
type brakesListed struct {
	Brakes []postadjudication.Brake `json:"brakes"`
}

func (c *command) brakeList() *cobra.Command {
	var o app.Options
	var tenant string
	cmd := &cobra.Command{
		Use: "list", Short: "List the brakes that a tenant has had", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := needTenant(cmd, tenant); err != nil {
				return err
			}
			service, err := c.look(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			found, err := service.Brakes(cmd.Context(), tenant)
			if err != nil {
				return err
			}
			if c.json {
				return c.answer(brakesListed{Brakes: found})
			}
			return showBrakes(screen.New(c.Out), tenant, found)
		},
	}
	o.BindLook(cmd.Flags())
	tenantFlag(cmd.Flags(), &tenant)
	return cmd
}

func showBrakes(s *screen.Screen, tenant string, brakes []postadjudication.Brake) error {
	if len(brakes) == 0 {
		s.Text("No brake of %s was ever pulled.", tenant)
		return s.Err()
	}
	rows := make([][]string, len(brakes))
	for i, b := range brakes {
		rows[i] = []string{b.Target, b.Family, stateOf(b), b.At.Format(time.RFC3339), b.Actor, b.Reason}
	}
	s.Table([]screen.Column{{Name: "target"}, {Name: "family", Spare: true}, {Name: "brake"}, {Name: "since"}, {Name: "by"}, {Name: "why", Wraps: true}}, rows)
	return s.Err()
}

func stateOf(b postadjudication.Brake) string {
	if b.ByHand {
		return string(b.State) + " by hand"
	}
	return string(b.State)
}

// brakeMove is PullBrake or ReleaseBrake.
type brakeMove func(s *postadjudication.Service, ctx context.Context, tenant, target, actor, reason string) (postadjudication.Brake, error)

func (c *command) brakeOrder(verb, short string, move brakeMove) *cobra.Command {
	var o app.Options
	var tenant, target, actor, reason string
	cmd := &cobra.Command{
		Use: verb, Short: short, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if actor == "" || reason == "" {
				return usage(cmd, errors.New("--actor and --reason are needed"))
			}
			if err := needTenant(cmd, tenant); err != nil {
				return err
			}
			service, err := c.open(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			b, err := move(service, cmd.Context(), tenant, target, actor, reason)
			if err != nil {
				return err
			}
			if c.json {
				return c.answer(b)
			}
			return showBrake(screen.New(c.Out), b)
		},
	}
	f := cmd.Flags()
	o.BindServers(f)
	tenantFlag(f, &tenant)
	f.StringVar(&target, "target", postadjudication.DefaultTarget, "the escrow service, or a family of tasks by its name")
	f.StringVar(&actor, "actor", "", "who asks (required)")
	f.StringVar(&reason, "reason", "", "why (required)")
	return cmd
}

func showBrake(s *screen.Screen, b postadjudication.Brake) error {
	switch b.State {
	case background.BrakePulled:
		s.Text("The brake of %s for %s is pulled, by %s: nothing is called until it is released.", b.Target, b.Tenant, b.Actor)
	case background.BrakeEasing:
		s.Text("The brake of %s for %s is easing: what is parked is let go step by step while the service bears it.", b.Target, b.Tenant)
	default:
		s.Text("The brake of %s for %s is released.", b.Target, b.Tenant)
	}
	return s.Err()
}
