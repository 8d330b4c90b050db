package cli

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
)

func (c *command) keys() *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Make, list and revoke access keys", Args: c.noSuch,
		Long: `Make, list and revoke the access keys of the HTTP API and asynqmon. A key opens one
tenant, and its principal is the actor of whatever is done with it. Its roles:

  submitter  hands over adjudications, and looks
  operator   forks, reconciles, cancels, brakes, holds, marks, plans
  approver   lets plans run, purges and clears
  auditor    looks at everything, with the receipts
  admin      keys, policies and rules; moves no money`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.keysCreate(), c.keysList(), c.keysRevoke())
	return cmd
}

// keyMade is the answer of keys create.
type keyMade struct {
	Token string `json:"token"`
	access.Key
}

// onKeys are the flags of every change of keys.
type onKeys struct {
	app.Options
	tenant, actor, reason string
}

func (k *onKeys) bind(cmd *cobra.Command) {
	k.BindServers(cmd.Flags())
	tenantFlag(cmd.Flags(), &k.tenant)
	cmd.Flags().StringVar(&k.actor, "actor", "", "who asks (required)")
	cmd.Flags().StringVar(&k.reason, "reason", "", "why (required)")
}

func (k *onKeys) check(cmd *cobra.Command) error {
	if k.actor == "" || k.reason == "" {
		return usage(cmd, errors.New("--actor and --reason are needed"))
	}
	return needTenant(cmd, k.tenant)
}

func (c *command) keysCreate() *cobra.Command {
	var k onKeys
	var principal, roles string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Make an access key, and show it this once", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := k.check(cmd); err != nil {
				return err
			}
			n := postadjudication.NewKey{Tenant: k.tenant, Principal: principal, Actor: k.actor, Reason: k.reason}
			if n.Roles, err = access.ParseRoles(roles); err != nil {
				return usage(cmd, errors.New("--roles "+err.Error()))
			}
			switch {
			case principal == "":
				return usage(cmd, errors.New("--principal is missing"))
			case lasts < 0:
				return usage(cmd, errors.New("--expires-in is negative"))
			case lasts > 0:
				n.ExpiresAt = time.Now().Add(lasts)
			}
			service, err := c.open(cmd.Context(), k.Options)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			token, made, err := service.CreateKey(cmd.Context(), n)
			if err != nil {
				return err
			}
			if c.json {
				return c.answer(keyMade{token, made})
			}
			s := screen.New(c.Out)
			s.Text("%s", token)
			s.Text("Keep it now, it is not shown again. It opens %s for %s, %s.", made.Tenant, made.Principal, until(made))
			return s.Err()
		},
	}
	k.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&principal, "principal", "", "who will hold it, such as user:ada (required)")
	f.StringVar(&roles, "roles", "", "submitter, operator, approver, auditor or admin; several with commas (required)")
	f.DurationVar(&lasts, "expires-in", 0, "for how long it opens, such as 720h (0: until it is revoked)")
	return cmd
}

func until(k access.Key) string {
	if k.ExpiresAt == nil {
		return "until it is revoked"
	}
	return "until " + k.ExpiresAt.Format(time.RFC3339)
}

func (c *command) keysList() *cobra.Command {
	var o app.Options
	var tenant string
	cmd := &cobra.Command{
		Use: "list", Short: "List the access keys that a tenant has ever had", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := needTenant(cmd, tenant); err != nil {
				return err
			}
			service, err := c.open(cmd.Context(), o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			found, err := service.Keys(cmd.Context(), tenant)
			if err != nil {
				return err
			}
			if c.json {
				return c.answer(map[string]any{"keys": append([]access.Key{}, found...)})
			}
			return showKeys(screen.New(c.Out), tenant, found, time.Now())
		},
	}
	o.BindServers(cmd.Flags())
	tenantFlag(cmd.Flags(), &tenant)
	return cmd
}

func showKeys(s *screen.Screen, tenant string, keys []access.Key, now time.Time) error {
	if len(keys) == 0 {
		s.Text("%s has no access key.", tenant)
		return s.Err()
	}
	rows := make([][]string, len(keys))
	for i, k := range keys {
		roles := make([]string, len(k.Roles))
		for j, r := range k.Roles {
			roles[j] = string(r)
		}
		used, ends := "never", "-"
		if k.LastUsed != nil {
			used = k.LastUsed.Format("2006-01-02 15:04")
		}
		if k.ExpiresAt != nil {
			ends = k.ExpiresAt.Format("2006-01-02 15:04")
		}
		rows[i] = []string{k.Prefix, k.Principal, strings.Join(roles, ", "), k.Standing(now), ends, used, k.CreatedAt.Format("2006-01-02 15:04") + " by " + k.CreatedBy}
	}
	s.Table([]screen.Column{{Name: "Prefix"}, {Name: "Principal"}, {Name: "Roles", Wraps: true}, {Name: "Now"}, {Name: "Expires", Spare: true}, {Name: "Used"}, {Name: "Made", Spare: true, Wraps: true}}, rows)
	s.Text("%s of %s.", plural(len(keys), "key"), tenant)
	return s.Err()
}

func (c *command) keysRevoke() *cobra.Command {
	var k onKeys
	cmd := &cobra.Command{
		Use: "revoke PREFIX", Short: "Revoke an access key for good", Args: exactly("PREFIX"),
		Long: `Revoke an access key for good, named by its prefix: the 12 characters behind rck_.
Every server refuses it at most 2 seconds later.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := k.check(cmd); err != nil {
				return err
			}
			service, err := c.open(cmd.Context(), k.Options)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.Close()) }()
			gone, err := service.RevokeKey(cmd.Context(), k.tenant, args[0], k.actor, k.reason)
			if err != nil {
				return missing(err, k.tenant, "key "+args[0])
			}
			if c.json {
				return c.answer(gone)
			}
			s := screen.New(c.Out)
			s.Text("The key %s of %s is revoked since %s.", gone.Prefix, gone.Principal, gone.RevokedAt.Format(time.RFC3339))
			return s.Err()
		},
	}
	k.bind(cmd)
	return cmd
}
