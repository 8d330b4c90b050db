package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/history"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

func keysCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Make, list, rotate and revoke access keys", Args: shell.UnknownCommand,
		Long: `Make, list, rotate and revoke the access keys of the HTTP API, asynqmon and /metrics. A key opens one
tenant, and its principal is the actor of whatever is done with it. Its roles:

  submitter  hands over adjudications, and reads what it has the id of, and events
  operator   forks, reconciles, cancels, opens circuit breakers, holds, marks, plans
  approver   lets plans run, purges and clears
  auditor    looks at everything, with the receipts
  admin      keys, policies, rules, how many people money takes; moves no money

--platform opens asynqmon and /metrics, which show the queues and the money of all tenants,
and nothing else. It is given here only, beside the database.

A key of a person (user:...) ends after 90 days, any other after 400, if nothing else is
said; the most is 2 years, and a key that never ends says why. In the last 30 days whoever
uses it is told its end. Rotating a key makes a successor, which opens beside it.

With --server a server is asked, with the key of an admin in $` + backend.KeyVariable + `; a key can't
make one that opens more than itself.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(keysCreate(sh), keysList(sh), keysRotate(sh), keysRevoke(sh), history.Command(sh, postadjudication.OperationLogKeys, "List who made and revoked which key, from the receipts"))
	return cmd
}

func keysCreate(sh *shell.Shell) *cobra.Command {
	var k backend.ChangeFlags
	var principal, roles string
	var platform bool
	var expiry keyExpiry
	cmd := &cobra.Command{
		Use: "create", Short: "Make an access key, and show it this once", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := k.Check(cmd); err != nil {
				return err
			}
			n := postadjudication.NewKey{Principal: principal, Reason: k.Reason}
			if roles == "" && !platform {
				return shell.Usage(cmd, errors.New("--roles is missing"))
			}
			if roles != "" {
				if n.Roles, err = access.ParseRoles(roles); err != nil {
					return shell.Usage(cmd, errors.New("--roles "+err.Error()))
				}
			}
			if platform {
				n.Roles = append(n.Roles, access.Platform)
			}
			if principal == "" {
				return shell.Usage(cmd, errors.New("--principal is missing"))
			}
			if err := access.CheckPrincipal(principal); err != nil {
				return shell.Usage(cmd, errors.New("--principal "+err.Error()))
			}
			if n.ExpiresAt, err = expiry.check(cmd, time.Now()); err != nil {
				return err
			}
			n.NeverExpires = expiry.never
			return backend.With(sh, cmd, &k.Flags, func(ctx context.Context, be backend.Backend) error {
				made, err := be.Keys.Create(ctx, n)
				if err != nil {
					return err
				}
				return answerKey(sh, made)
			})
		},
	}
	k.Bind(cmd)
	f := cmd.Flags()
	f.StringVar(&principal, "principal", "", "who will hold it, such as user:ada (required)")
	f.StringVar(&roles, "roles", "", "submitter, operator, approver, auditor or admin; several with commas (required without --platform)")
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	local.BoolVar(&platform, "platform", false, "it opens asynqmon and /metrics, which show all tenants (not with --server: no tenant's admin gives it)")
	k.BindLocal(f, local)
	expiry.bind(f)
	return cmd
}

// keyExpiry are the flags that say when a new key ends.
type keyExpiry struct {
	after time.Duration
	never string
}

func (e *keyExpiry) bind(f *pflag.FlagSet) {
	f.DurationVar(&e.after, "expires-in", 0, "for how long it opens, such as 720h (default 2160h, 90 days, of user:..., else 9600h, 400 days; at most 17520h, 2 years)")
	f.StringVar(&e.never, "never-expires", "", "`why` the key has no end; it stands in the receipt")
}

// check returns the time at which the key ends; zero when the flags say none.
func (e *keyExpiry) check(cmd *cobra.Command, now time.Time) (time.Time, error) {
	said, never := cmd.Flags().Changed("expires-in"), cmd.Flags().Changed("never-expires")
	switch {
	case said && never:
		return time.Time{}, shell.Usage(cmd, errors.New("--expires-in and --never-expires exclude each other"))
	case never && strings.TrimSpace(e.never) == "":
		return time.Time{}, shell.Usage(cmd, errors.New("--never-expires says why: it is empty"))
	case said && e.after <= 0:
		return time.Time{}, shell.Usage(cmd, errors.New("--expires-in must be above 0; a key without an end says why: --never-expires WHY"))
	case said && e.after > access.MaxLifetime:
		return time.Time{}, shell.Usage(cmd, errors.New("--expires-in must be at most 17520h, 2 years; a key without an end says why: --never-expires WHY"))
	case said:
		return now.Add(e.after), nil
	}
	return time.Time{}, nil
}

func keysRotate(sh *shell.Shell) *cobra.Command {
	var k backend.ChangeFlags
	var expiry keyExpiry
	cmd := &cobra.Command{
		Use: "rotate PREFIX", Short: "Make the successor of an access key, and show it this once", Args: shell.Exactly("PREFIX"),
		Long: `Make a key with the principal and the roles of another one, which is named by its prefix:
the 12 characters behind rck_. Both open, until the old one ends or is revoked: keys list
tells when it was used last.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.Check(cmd); err != nil {
				return err
			}
			ends, err := expiry.check(cmd, time.Now())
			if err != nil {
				return err
			}
			return backend.With(sh, cmd, &k.Flags, func(ctx context.Context, be backend.Backend) error {
				made, err := be.Keys.Rotate(ctx, postadjudication.KeyRotation{Prefix: args[0], ExpiresAt: ends, NeverExpires: expiry.never, Reason: k.Reason})
				if err != nil {
					return k.NotFound(err, "key "+args[0])
				}
				return answerKey(sh, made)
			})
		},
	}
	k.Bind(cmd)
	expiry.bind(cmd.Flags())
	return cmd
}

// answerKey answers with a key that was made, with its token.
func answerKey(sh *shell.Shell, made api.NewKey) error {
	if sh.JSON {
		return sh.Answer(made)
	}
	s := sh.Screen()
	s.Text("%s", made.Token)
	s.Text("Keep it now, it is not shown again. It opens %s for %s, %s.", made.Tenant, made.Principal, expiryText(made.Key))
	if made.SuccessorOf != "" {
		s.Text("The key %s opens beside it: revoke it when nothing uses it any more.", made.SuccessorOf)
	}
	return s.Err()
}

func expiryText(k access.Key) string {
	if k.ExpiresAt == nil {
		return "until it is revoked"
	}
	return "until " + k.ExpiresAt.Format(time.RFC3339)
}

func keysList(sh *shell.Shell) *cobra.Command {
	var o backend.Flags
	cmd := &cobra.Command{
		Use: "list", Short: "List the access keys that a tenant has ever had", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			return backend.With(sh, cmd, &o, func(ctx context.Context, be backend.Backend) error {
				found, err := be.Keys.List(ctx)
				if err != nil {
					return err
				}
				if sh.JSON {
					return sh.Answer(map[string]any{"keys": append([]access.Key{}, found...)})
				}
				return showKeys(sh.Screen(), o.TenantLabel(), found, time.Now())
			})
		},
	}
	o.Bind(cmd.Flags())
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
		used, ends := "never", "never"
		if k.LastUsed != nil {
			used = k.LastUsed.UTC().Format("2006-01-02 15:04")
		}
		if k.ExpiresAt != nil {
			ends = k.ExpiresAt.UTC().Format("2006-01-02 15:04")
		}
		rows[i] = []string{k.Prefix, k.Principal, strings.Join(roles, ", "), k.Status(now), ends, used, k.CreatedAt.UTC().Format("2006-01-02 15:04") + " by " + k.CreatedBy}
	}
	s.Table([]screen.Column{{Name: "Prefix"}, {Name: "Principal"}, {Name: "Roles", Wraps: true}, {Name: "Now"}, {Name: "Expires (UTC)", Optional: true}, {Name: "Used (UTC)"}, {Name: "Made (UTC)", Optional: true, Wraps: true}}, rows)
	s.Text("%s of %s.", shell.Plural(len(keys), "key"), tenant)
	return s.Err()
}

func keysRevoke(sh *shell.Shell) *cobra.Command {
	var k backend.ChangeFlags
	cmd := &cobra.Command{
		Use: "revoke PREFIX", Short: "Revoke an access key for good", Args: shell.Exactly("PREFIX"),
		Long: `Revoke an access key for good, named by its prefix: the 12 characters behind rck_.
Every server refuses it at most 2 seconds later.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := k.Check(cmd); err != nil {
				return err
			}
			return backend.With(sh, cmd, &k.Flags, func(ctx context.Context, be backend.Backend) error {
				revoked, err := be.Keys.Revoke(ctx, args[0], k.Reason)
				if err != nil {
					return k.NotFound(err, "key "+args[0])
				}
				if sh.JSON {
					return sh.Answer(revoked)
				}
				s := sh.Screen()
				s.Text("The key %s of %s is revoked since %s.", revoked.Prefix, revoked.Principal, revoked.RevokedAt.Format(time.RFC3339))
				return s.Err()
			})
		},
	}
	k.Bind(cmd)
	return cmd
}

// accessCommand is the group of commands about what access keys were refused.
func accessCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "access", Short: "Look at what access keys were refused", Args: shell.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(history.Command(sh, postadjudication.OperationLogRefusals, "List who was refused what where no case was named, from the receipts"))
	return cmd
}
