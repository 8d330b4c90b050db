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
	"github.com/recourse-dev/recourse/postadjudication"
)

// KeyVariable names the access key that is shown to a server. It is no flag: flags are
// seen by whoever lists processes.
const KeyVariable = "RECOURSE_KEY"

// Flags are the connection flags: they say where a command works, and in whose name. At a
// server the key says whose rows are meant and in whose name.
type Flags struct {
	app.Options
	Server, Tenant, Actor string
	Mutates               bool // the command changes something
	NoRedis               bool // what it changes is nothing that Redis knows of

	insecure bool
	local    []string // names of the flags that mean nothing to a server
}

// needsRedis reports whether Redis is needed.
func (o *Flags) needsRedis() bool { return o.Mutates && !o.NoRedis }

// Bind defines the flags of commands that look.
func (o *Flags) Bind(f *pflag.FlagSet) {
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	if o.needsRedis() {
		o.BindServers(local)
	} else {
		o.BindReadOnly(local)
	}
	o.BindLocal(f, local)
	f.StringVar(&o.Server, "server", "", "ask a server at this URL instead of the database; $"+KeyVariable+" is the key that it is shown")
	f.BoolVar(&o.insecure, "insecure", false, "show the key to a --server over plain http beyond loopback, where it travels in the clear")
	f.StringVar(&o.Tenant, "tenant", "", "name of the tenant (required; with --server the key says it)")
}

// BindActor defines the flags of commands that act.
func (o *Flags) BindActor(f *pflag.FlagSet) {
	o.Mutates = true
	o.Bind(f)
	local := pflag.NewFlagSet("", pflag.ContinueOnError)
	shell.ActorFlag(local, &o.Actor, "who asks, such as user:ada or root (required; with --server it is the key's principal)")
	o.BindLocal(f, local)
}

// BindLocal adds flags that are not for servers.
func (o *Flags) BindLocal(to, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { o.local = append(o.local, f.Name) })
	to.AddFlagSet(flags)
}

// Check refuses flags that do not go together.
func (o *Flags) Check(cmd *cobra.Command) error {
	if o.Server == "" {
		if o.insecure {
			return shell.Usage(cmd, errors.New("--insecure is about a --server"))
		}
		if o.Mutates && o.Actor == "" {
			return shell.Usage(cmd, errors.New("--actor is missing"))
		}
		return shell.NeedTenant(cmd, o.Tenant)
	}
	for _, name := range o.local {
		if cmd.Flags().Changed(name) {
			return shell.Usage(cmd, fmt.Errorf("--%s is not for --server: leave it out", name))
		}
	}
	return nil
}

// RepeatFlags are the flags that a next command needs to be about the same letters, in the
// same name if it acts.
func (o *Flags) RepeatFlags(acts bool) string {
	var out strings.Builder
	said := [][2]string{{"server", o.Server}, {"tenant", o.Tenant}}
	if acts {
		said = append(said, [2]string{"actor", o.Actor})
	}
	for _, f := range said {
		if f[1] != "" {
			out.WriteString(" --" + f[0] + " " + shell.Quote(f[1]))
		}
	}
	if o.insecure {
		out.WriteString(" --insecure")
	}
	return out.String()
}

// ChangeFlags are the flags of every change of keys, policies and people.
type ChangeFlags struct {
	Flags
	Reason string
}

// Bind defines the flags.
func (o *ChangeFlags) Bind(cmd *cobra.Command) {
	o.NoRedis = true
	o.BindActor(cmd.Flags())
	cmd.Flags().StringVar(&o.Reason, "reason", "", "why (required)")
}

// Check refuses what is missing, and flags that do not go together.
func (o *ChangeFlags) Check(cmd *cobra.Command) error {
	if o.Reason == "" || o.Server == "" && o.Actor == "" {
		return shell.Usage(cmd, errors.New("--actor and --reason are needed"))
	}
	return o.Flags.Check(cmd)
}

// With opens the backend that the flags name, and closes it after the work.
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
	var nothing *postadjudication.NothingSelectedError
	if errors.As(err, &nothing) {
		return AnswerNothing(sh, nothing)
	}
	return answerSecondPersonError(sh, o, err)
}

// nameFlags calls a field by the name of its flag, where the command has one.
func nameFlags(cmd *cobra.Command, err error) {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, one := range several.Unwrap() {
			nameFlags(cmd, one)
		}
		return
	}
	var field *postadjudication.FieldError
	if !errors.As(err, &field) {
		return
	}
	name := strings.ReplaceAll(field.Field, "_", "-")
	switch {
	case name == "where":
		field.Field = "--filter:"
	case name == "max-retry-attempts" && cmd.Flags().Lookup("max-attempts") != nil:
		field.Field = "--max-attempts"
	case cmd.Flags().Lookup(name) != nil:
		field.Field = "--" + name
	}
}

// TenantLabel says whose rows are meant, for people.
func (o *Flags) TenantLabel() string {
	if o.Tenant == "" {
		return "the key's tenant"
	}
	return o.Tenant
}

// NotFound says in a person's words that there is no such thing.
func (o *Flags) NotFound(err error, what string) error {
	if o.Tenant != "" {
		return shell.NotFound(err, o.Tenant, what)
	}
	if errors.Is(err, postadjudication.ErrNotFound) {
		return shell.WithCode(shell.ExitFailed, errors.New("the key's tenant has no "+what))
	}
	return err
}
