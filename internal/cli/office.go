package cli

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

// office are the flags that say where the letters are, and in whose name something is
// done: at a server its key says whose letters and in whose name.
type office struct {
	app.Options
	server, tenant, actor string
	insecure              bool
	acts                  bool
	quiet                 bool     // what it changes is nothing that Redis knows of
	here                  []string // names of the flags that mean nothing to a server
}

// rings reports whether Redis is needed.
func (o *office) rings() bool { return o.acts && !o.quiet }

// bind defines the flags of commands that look.
func (o *office) bind(f *pflag.FlagSet) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	if o.rings() {
		o.BindServers(own)
	} else {
		o.BindLook(own)
	}
	o.local(f, own)
	f.StringVar(&o.server, "server", "", "ask a server at this URL instead of the database; $"+KeyVariable+" is the key that it is shown")
	f.BoolVar(&o.insecure, "insecure", false, "show the key to a --server over plain http beyond loopback, where it travels in the clear")
	f.StringVar(&o.tenant, "tenant", "", "name of the tenant (required; with --server the key says it)")
}

// bindActor defines the flags of commands that act.
func (o *office) bindActor(f *pflag.FlagSet) {
	o.acts = true
	o.bind(f)
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	shell.ActorFlag(own, &o.actor, "who asks, such as user:ada or root (required; with --server it is the key's principal)")
	o.local(f, own)
}

// local adds flags that are not for servers.
func (o *office) local(to, flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { o.here = append(o.here, f.Name) })
	to.AddFlagSet(flags)
}

// check refuses flags that do not go together.
func (o *office) check(cmd *cobra.Command) error {
	if o.server == "" {
		if o.insecure {
			return shell.Usage(cmd, errors.New("--insecure is about a --server"))
		}
		if o.acts && o.actor == "" {
			return shell.Usage(cmd, errors.New("--actor is missing"))
		}
		return shell.NeedTenant(cmd, o.tenant)
	}
	for _, name := range o.here {
		if cmd.Flags().Changed(name) {
			return shell.Usage(cmd, fmt.Errorf("--%s is not for --server: leave it out", name))
		}
	}
	return nil
}

// again are the flags that a next command needs to be about the same letters, in the
// same name if it acts.
func (o *office) again(acts bool) string {
	var out strings.Builder
	said := [][2]string{{"server", o.server}, {"tenant", o.tenant}}
	if acts {
		said = append(said, [2]string{"actor", o.actor})
	}
	for _, f := range said {
		if f[1] != "" {
			out.WriteString(" --" + f[0] + " " + shell.Word(f[1]))
		}
	}
	if o.insecure {
		out.WriteString(" --insecure")
	}
	return out.String()
}

// withBackend opens the backend that the flags name, and closes it after the work.
func withBackend(sh *shell.Shell, cmd *cobra.Command, o *office, work func(context.Context, Backend) error) (err error) {
	if err := o.check(cmd); err != nil {
		return err
	}
	var found Backend
	if o.server != "" {
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
	return secondPerson(sh, o, err)
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

// whose are the rows that are meant, for people.
func (o *office) whose() string {
	if o.tenant == "" {
		return "the key's tenant"
	}
	return o.tenant
}

// gone says in a person's words that there is no such thing.
func (o *office) gone(err error, what string) error {
	if o.tenant != "" {
		return missing(err, o.tenant, what)
	}
	if errors.Is(err, postadjudication.ErrNotFound) {
		return shell.WithCode(shell.ExitFailed, errors.New("the key's tenant has no "+what))
	}
	return err
}
