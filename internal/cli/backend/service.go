package backend

import (
	"context"
	"strings"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// AllowGuardsOff returns a configuration for reading, which also opens a database where what protects evidence is
// off or changed.
func AllowGuardsOff(o *app.Options) (postadjudication.Config, error) {
	config, err := o.ReadOnlyConfig()
	config.AllowUnsuitable = true
	return config, err
}

// warnOfGuards writes one line to standard error if what protects evidence is off or changed.
func warnOfGuards(ctx context.Context, sh *shell.Shell, service *postadjudication.Service) error {
	off, err := service.Health().GuardsOff(ctx)
	if err == nil && len(off) > 0 {
		sh.Note("warning: " + guardsWarning(off))
	}
	return err
}

// guardsWarning returns what that means to a reader. The order of the commands
// matters: migrate restores what is off or changed, and then nothing shows that it was.
func guardsWarning(off []string) string {
	return shell.Plural(len(off), "guard") + " of evidence off or changed (" + strings.Join(off, ", ") +
		"): evidence can be rewritten, and this output may show changed data. Run recourse receipts verify and find the cause before you run recourse migrate, which restores them."
}

// OpenWith opens a service with the configuration that configure returns for the options, after
// they were filled from the environment.
func OpenWith(ctx context.Context, sh *shell.Shell, o app.Options, configure func(*app.Options) (postadjudication.Config, error)) (*postadjudication.Service, error) {
	o.FromEnvironment(sh.Getenv)
	config, err := configure(&o)
	if err != nil {
		return nil, err
	}
	return postadjudication.Open(ctx, config)
}
