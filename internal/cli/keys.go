package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/access"
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
  admin      keys, policies, rules, how many people money takes; moves no money

With --server a server is asked, with the key of an admin in $` + KeyVariable + `; a key can't
make one that opens more than itself.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.keysCreate(), c.keysList(), c.keysRevoke(), c.history(postadjudication.RegisterKeys, "List who made and revoked which key, from the receipts"))
	return cmd
}

// keyMade is the answer of keys create.
type keyMade struct {
	Token string `json:"token"`
	access.Key
}

// ordered are the flags of every change of keys and policies.
type ordered struct {
	office
	reason string
}

func (o *ordered) bind(cmd *cobra.Command) {
	o.quiet = true
	o.bindActor(cmd.Flags())
	cmd.Flags().StringVar(&o.reason, "reason", "", "why (required)")
}

func (o *ordered) check(cmd *cobra.Command) error {
	if o.reason == "" || o.server == "" && o.actor == "" {
		return usage(cmd, errors.New("--actor and --reason are needed"))
	}
	return o.office.check(cmd)
}

func (c *command) keysCreate() *cobra.Command {
	var k ordered
	var principal, roles string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Make an access key, and show it this once", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := k.check(cmd); err != nil {
				return err
			}
			n := postadjudication.NewKey{Principal: principal, Reason: k.reason}
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
			return c.withClerk(cmd, &k.office, func(ctx context.Context, at clerk) error {
				made, err := at.CreateKey(ctx, n)
				if err != nil {
					return err
				}
				if c.json {
					return c.answer(made)
				}
				s := screen.New(c.Out)
				s.Text("%s", made.Token)
				s.Text("Keep it now, it is not shown again. It opens %s for %s, %s.", made.Tenant, made.Principal, until(made.Key))
				return s.Err()
			})
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
	var o office
	cmd := &cobra.Command{
		Use: "list", Short: "List the access keys that a tenant has ever had", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			return c.withClerk(cmd, &o, func(ctx context.Context, at clerk) error {
				found, err := at.Keys(ctx)
				if err != nil {
					return err
				}
				if c.json {
					return c.answer(map[string]any{"keys": append([]access.Key{}, found...)})
				}
				return showKeys(screen.New(c.Out), o.whose(), found, time.Now())
			})
		},
	}
	o.bind(cmd.Flags())
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
	var k ordered
	cmd := &cobra.Command{
		Use: "revoke PREFIX", Short: "Revoke an access key for good", Args: exactly("PREFIX"),
		Long: `Revoke an access key for good, named by its prefix: the 12 characters behind rck_.
Every server refuses it at most 2 seconds later.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := k.check(cmd); err != nil {
				return err
			}
			return c.withClerk(cmd, &k.office, func(ctx context.Context, at clerk) error {
				gone, err := at.RevokeKey(ctx, args[0], k.reason)
				if err != nil {
					return k.gone(err, "key "+args[0])
				}
				if c.json {
					return c.answer(gone)
				}
				s := screen.New(c.Out)
				s.Text("The key %s of %s is revoked since %s.", gone.Prefix, gone.Principal, gone.RevokedAt.Format(time.RFC3339))
				return s.Err()
			})
		},
	}
	k.bind(cmd)
	return cmd
}
