package cli

import (
	"context"
	"errors"
	"slices"
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
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

func keysCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Create, list, rotate and revoke access keys", Args: shell.UnknownCommand,
		Long: `Create, list, rotate and revoke the access keys of the HTTP API, asynqmon and /metrics. A
key gives access to one tenant, and receipts record its principal as the actor. Roles:

  submitter  submits adjudications; reads what its principal submitted, and its events
  worker     fetches jobs, answers for them and extends their leases
  operator   forks, reconciles, cancels, holds, marks, plans, opens circuit breakers
  approver   runs plans, also those that purge; pauses and cancels them; holds
  auditor    reads everything but keys and webhooks, including the receipts
  admin      manages keys, webhooks, policies, rules and the number of people; moves no money

--platform gives access only to asynqmon, /metrics and dlq stats --all-tenants, which show
the queues and the money of all tenants. Such a key can be created only on the database, not with --server.

A worker fetches adjudications only with a key that names their payment queue in --queues.
The principal of such a key decides nothing in the same tenant: it can't be submitter,
operator, approver or admin, by whichever key.

By default the key of a person (user:...) expires after 90 days and any other key after
400 days. The maximum is 2 years; a key without expiry needs a reason. In its last 30 days
each response to a request with the key states its expiry. Rotating a key creates a successor; both are
valid until the old key expires or is revoked. With --server only the principal of a key
rotates it.

--server uses a server, with the key of an admin in $` + backend.KeyVariable + `. A key cannot create a
key with more access than its own.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(keysCreate(sh), keysList(sh), keysRotate(sh), keysRevoke(sh), history.Command(sh, postadjudication.OperationLogKeys, "List which keys were created, rotated and revoked, by whom, from the receipts"))
	return cmd
}

func keysCreate(sh *shell.Shell) *cobra.Command {
	var k backend.ChangeFlags
	var principal, roles string
	var queues []string
	var platform bool
	var expiry keyExpiry
	cmd := &cobra.Command{
		Use: "create", Short: "Create an access key and print it; it is not shown again", Args: shell.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if platform && roles == "" && k.Tenant == "" {
				k.Tenant = postadjudication.AllTenants // the key shows all of them and may do nothing else
			}
			if err := k.Check(cmd); err != nil {
				return err
			}
			n := postadjudication.NewKey{Principal: principal, Queues: queues, Reason: k.Reason}
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
			if err := access.CheckQueues(queues, n.Roles); err != nil {
				return shell.Usage(cmd, errors.New("--queues "+err.Error()))
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
				token, made, err := be.Keys.Create(ctx, n)
				if err != nil {
					return err
				}
				return answerKey(sh, token, made)
			})
		},
	}
	k.Bind(cmd)
	f := cmd.Flags()
	f.StringVar(&principal, "principal", "", "owner of the key, such as user:ada (required)")
	f.StringVar(&roles, "roles", "", "submitter, worker, operator, approver, auditor or admin, comma-separated (required without --platform)")
	f.StringSliceVar(&queues, "queues", nil, "queues from which a worker with the key fetches, comma-separated; * stands for any text (default all that are no payment queues)")
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	local.BoolVar(&platform, "platform", false, "give access to asynqmon, /metrics and dlq stats --all-tenants, which show all tenants; alone it needs no --tenant (not with --server: no tenant's admin may grant it)")
	k.BindLocal(f, local)
	expiry.bind(f)
	return cmd
}

// keyExpiry are the flags for the expiry of a new key.
type keyExpiry struct {
	after deadletter.Duration // its text may be in days
	never string
}

func (e *keyExpiry) bind(f *pflag.FlagSet) {
	f.Var(&e.after, "expires-in", "time until the key expires, such as 30d or 720h (default 90d for user:..., else 400d; maximum 730d, 2 years)")
	f.Lookup("expires-in").DefValue = "" // 0s would read as a key that never works
	f.StringVar(&e.never, "never-expires", "", "create a key without expiry, and record this `reason`")
}

// check returns the time at which the key expires; zero if the flags give none.
func (e *keyExpiry) check(cmd *cobra.Command, now time.Time) (time.Time, error) {
	said, never := cmd.Flags().Changed("expires-in"), cmd.Flags().Changed("never-expires")
	switch {
	case said && never:
		return time.Time{}, shell.Usage(cmd, errors.New("--expires-in and --never-expires exclude each other"))
	case never && strings.TrimSpace(e.never) == "":
		return time.Time{}, shell.Usage(cmd, errors.New("--never-expires needs a reason"))
	case said && e.after <= 0:
		return time.Time{}, shell.Usage(cmd, errors.New("--expires-in must be above 0; for a key without expiry use --never-expires REASON"))
	case said && time.Duration(e.after) > access.MaxLifetime:
		return time.Time{}, shell.Usage(cmd, errors.New("--expires-in must be at most 730d, 2 years; for a key without expiry use --never-expires REASON"))
	case said:
		return now.Add(time.Duration(e.after)), nil
	}
	return time.Time{}, nil
}

func keysRotate(sh *shell.Shell) *cobra.Command {
	var k backend.ChangeFlags
	var expiry keyExpiry
	cmd := &cobra.Command{
		Use: "rotate PREFIX", Short: "Create the successor of an access key and print it; it is not shown again", Args: shell.Exactly("PREFIX"),
		Long: `Create a key with the principal, the roles and the queues of an existing key. PREFIX is the 12
characters of the existing key after rck_. Both keys are valid until the old one expires
or is revoked; recourse keys list shows when each was last used. With --server only the
principal of the key gets the token. With access to the database anybody gets it, and the
receipt names them.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := k.Check(cmd); err != nil {
				return err
			}
			ends, err := expiry.check(cmd, time.Now())
			if err != nil {
				return err
			}
			return backend.With(sh, cmd, &k.Flags, func(ctx context.Context, be backend.Backend) error {
				token, made, err := be.Keys.Rotate(ctx, postadjudication.KeyRotation{Prefix: keyPrefix(args[0]), ExpiresAt: ends, NeverExpires: expiry.never, Reason: k.Reason})
				if err != nil {
					return k.NotFound(err, "key "+args[0])
				}
				return answerKey(sh, token, made)
			})
		},
	}
	k.Bind(cmd)
	expiry.bind(cmd.Flags())
	return cmd
}

// answerKey writes a created key, with its token.
func answerKey(sh *shell.Shell, token string, made access.Key) error {
	if sh.JSON {
		return sh.Answer(api.NewKey{Token: token, Key: made})
	}
	s := sh.Screen()
	s.Text("%s", token)
	s.Text("Store it now, it is not shown again. It gives %s access to %s, %s.", made.Principal, accessText(made), expiryText(made))
	if made.SuccessorOf != "" {
		s.Text("The old key %s stays valid: revoke it once nothing uses it.", made.SuccessorOf)
	}
	return s.Err()
}

// accessText returns what a key opens.
func accessText(k access.Key) string {
	const all = "asynqmon, /metrics and dlq stats --all-tenants, which show the queues and the money of all tenants"
	switch platform := slices.Contains(k.Roles, access.Platform); {
	case platform && len(k.Roles) == 1:
		return all
	case platform:
		return k.Tenant + ", and to " + all
	}
	return k.Tenant
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
		Use: "list", Short: "List all access keys of a tenant, including expired and revoked ones", Args: shell.Exactly(),
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
		used, ends := "never", "never"
		if k.LastUsed != nil {
			used = k.LastUsed.UTC().Format("2006-01-02 15:04")
		}
		if k.ExpiresAt != nil {
			ends = k.ExpiresAt.UTC().Format("2006-01-02 15:04")
		}
		rows[i] = []string{k.Prefix, k.Principal, dutiesText(k), k.Status(now), ends, used, k.CreatedAt.UTC().Format("2006-01-02 15:04") + " by " + k.CreatedBy}
	}
	s.Table([]screen.Column{{Name: "Prefix"}, {Name: "Principal", Wraps: true}, {Name: "Roles", Wraps: true}, {Name: "Status"}, {Name: "Expires (UTC)", Optional: true}, {Name: "Last used (UTC)"}, {Name: "Created (UTC)", Optional: true, Wraps: true}}, rows)
	s.Text("%s of %s.", shell.Plural(len(keys), "key"), tenant)
	return s.Err()
}

// dutiesText returns the roles of a key, and the queues of a worker.
func dutiesText(k access.Key) string {
	if len(k.Queues) == 0 {
		return access.JoinRoles(k.Roles)
	}
	return access.JoinRoles(k.Roles) + " of " + strings.Join(k.Queues, ", ")
}

// keyPrefix returns the prefix of a key that may be written as keys begin.
func keyPrefix(text string) string { return strings.TrimPrefix(text, "rck_") }

func keysRevoke(sh *shell.Shell) *cobra.Command {
	var k backend.ChangeFlags
	cmd := &cobra.Command{
		Use: "revoke PREFIX", Short: "Revoke an access key for good", Args: shell.Exactly("PREFIX"),
		Long: `Revoke an access key for good. PREFIX is the 12 characters of the key after rck_. Every
server refuses the key at most 2 seconds later.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := k.Check(cmd); err != nil {
				return err
			}
			return backend.With(sh, cmd, &k.Flags, func(ctx context.Context, be backend.Backend) error {
				revoked, err := be.Keys.Revoke(ctx, keyPrefix(args[0]), k.Reason)
				if err != nil {
					return k.NotFound(err, "key "+args[0])
				}
				if sh.JSON {
					return sh.Answer(revoked)
				}
				s := sh.Screen()
				s.Text("The key %s of %s was revoked at %s.", revoked.Prefix, revoked.Principal, revoked.RevokedAt.Format(time.RFC3339))
				return s.Err()
			})
		},
	}
	k.Bind(cmd)
	return cmd
}

// accessCommand is the group of commands about refused requests.
func accessCommand(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "access", Short: "Show requests refused for their access key", Args: shell.UnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(history.Command(sh, postadjudication.OperationLogRefusals, "List requests that named no case and were refused for their key, role or person, from the receipts"))
	return cmd
}
