package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Flags are the connection flags of a command, with its tenant and actor. At a server the
// access key determines the tenant and the actor.
type Flags struct {
	app.Options
	Server, Tenant, Actor string
	Mutates               bool // the command changes something
	NoRedis               bool // the change does not involve Redis
	Webhooks              bool // the command needs the keys and networks of webhooks
	Submits               bool // the command hands adjudications over, which name their tenants

	insecure bool
	local    []string // names of the flags that are refused with --server
}

// needsRedis reports whether Redis is needed.
func (o *Flags) needsRedis() bool { return o.changes() && !o.NoRedis }

// changes reports whether the command changes something.
func (o *Flags) changes() bool { return o.Mutates || o.Submits }

// Bind defines the flags of read-only commands.
func (o *Flags) Bind(f *pflag.FlagSet) {
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	if o.needsRedis() {
		o.BindServers(local)
	} else {
		o.BindReadOnly(local)
	}
	o.BindLocal(f, local)
	f.StringVar(&o.Server, "server", "", "URL of a recourse server to use instead of the database; the access key is read from $"+KeyVariable)
	f.BoolVar(&o.insecure, "insecure", false, "allow plain http to a --server beyond loopback: others on the network can read the access key")
	tenant := "tenant to act on (required; with --server the key determines it)"
	if o.Submits {
		tenant = "with --server, the tenant of all lines, at a server without access keys"
	}
	f.StringVar(&o.Tenant, "tenant", "", tenant)
}

// BindActor defines the flags of commands that change something.
func (o *Flags) BindActor(f *pflag.FlagSet) {
	o.Mutates = true
	o.Bind(f)
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	shell.ActorFlag(local, &o.Actor, "name to record as the actor, such as user:ada or root (required; with --server the key's principal is recorded)")
	o.BindLocal(f, local)
}

// BindLocal adds flags that are refused with --server.
func (o *Flags) BindLocal(to, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { o.local = append(o.local, f.Name) })
	to.AddFlagSet(flags)
}

// Check returns an error for missing or conflicting flags.
func (o *Flags) Check(cmd *cobra.Command) error {
	if o.Server == "" {
		if o.insecure {
			return shell.Usage(cmd, errors.New("--insecure needs --server"))
		}
		if o.Mutates && o.Actor == "" {
			return shell.Usage(cmd, errors.New("--actor is missing"))
		}
		if o.Submits { // each line names its tenant
			return nil
		}
		return shell.NeedTenant(cmd, o.Tenant)
	}
	for _, name := range o.local {
		if cmd.Flags().Changed(name) {
			hint := ""
			if !cmd.Flags().Changed("server") {
				hint = `, which $` + serverVariable + ` sets; --server "" uses the database`
			}
			return shell.Usage(cmd, fmt.Errorf("--%s cannot be used with --server%s", name, hint))
		}
	}
	return nil
}

// RepeatFlags returns the connection flags for a next command with the same backend and tenant,
// and with the same actor if it acts.
func (o *Flags) RepeatFlags(acts bool) string {
	var out strings.Builder
	flags := [][2]string{{"server", o.Server}, {"tenant", o.Tenant}}
	if acts {
		flags = append(flags, [2]string{"actor", o.Actor})
	}
	for _, f := range flags {
		if f[1] != "" {
			out.WriteString(" --" + f[0] + " " + shell.Quote(f[1]))
		}
	}
	if o.insecure {
		out.WriteString(" --insecure")
	}
	return out.String()
}

// ChangeFlags are the flags of commands that change keys, policies and people.
type ChangeFlags struct {
	Flags
	Reason string
}

// Bind defines the flags.
func (o *ChangeFlags) Bind(cmd *cobra.Command) {
	o.NoRedis = true
	o.BindActor(cmd.Flags())
	cmd.Flags().StringVar(&o.Reason, "reason", "", "reason to record (required)")
}

// Check returns an error for missing or conflicting flags.
func (o *ChangeFlags) Check(cmd *cobra.Command) error {
	if o.Server == "" && (o.Actor == "" || o.Reason == "") {
		return shell.Usage(cmd, errors.New("--actor and --reason are required"))
	}
	if err := shell.NeedReason(cmd, o.Reason); err != nil {
		return err
	}
	return o.Flags.Check(cmd)
}

// With opens the backend that the flags name, calls work, and closes the backend. For a
// NothingSelectedError or a SecondPersonError it writes the answer itself.
func With(sh *shell.Shell, cmd *cobra.Command, o *Flags, work func(context.Context, Backend) error) (err error) {
	if err := o.Check(cmd); err != nil {
		return err
	}
	var found Backend
	if o.Server != "" {
		found, err = openRemote(sh, o)
	} else {
		found, err = openLocal(cmd.Context(), sh, o)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	err = work(cmd.Context(), found)
	nameFlags(cmd, err)
	var nothing *bulk.NothingSelectedError
	if errors.As(err, &nothing) {
		return AnswerNothing(sh, nothing, nil)
	}
	return answerSecondPersonError(sh, o, err)
}

// nameFlags replaces the field of a FieldError by the name of its flag, if the command has one.
func nameFlags(cmd *cobra.Command, err error) {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, one := range several.Unwrap() {
			nameFlags(cmd, one)
		}
		return
	}
	var field *refusal.FieldError
	if !errors.As(err, &field) {
		return
	}
	name := strings.ReplaceAll(field.Field, "_", "-")
	switch {
	case name == "where":
		field.Field = "--filter:"
	case (name == "types" || name == "secret") && cmd.Flags().Lookup("secret-file") != nil:
		field.Field = map[string]string{"types": "--type", "secret": "the secret in --secret-file"}[name]
	case name == "max-retry-attempts" && cmd.Flags().Lookup("max-attempts") != nil:
		field.Field = "--max-attempts"
	case cmd.Flags().Lookup(name) != nil:
		field.Field = "--" + name
	}
}

// TenantLabel returns the tenant for people.
func (o *Flags) TenantLabel() string {
	if o.Tenant == "" {
		return "the key's tenant"
	}
	return o.Tenant
}

// NotFound replaces ErrNotFound by an error that names what is missing.
func (o *Flags) NotFound(err error, what string) error {
	if o.Tenant != "" {
		return shell.NotFound(err, o.Tenant, what)
	}
	if errors.Is(err, refusal.ErrNotFound) {
		return shell.WithCode(shell.ExitFailed, errors.New("the key's tenant has no "+what))
	}
	return err
}
