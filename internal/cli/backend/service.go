package backend

import (
	"context"
	"errors"
	"strings"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Open opens a service that reads and submits. It needs Redis.
func Open(ctx context.Context, sh *shell.Shell, o app.Options) (*postadjudication.Service, error) {
	return OpenWith(ctx, sh, o, (*app.Options).ServiceConfig)
}

// OpenReadOnly opens a service that only reads. If triggers are disabled it writes a warning to
// standard error and returns the service nevertheless.
func OpenReadOnly(ctx context.Context, sh *shell.Shell, o app.Options) (*postadjudication.Service, error) {
	service, err := OpenWith(ctx, sh, o, AllowTriggersOff)
	if err != nil {
		return nil, err
	}
	if err := warnOfTriggers(ctx, sh, service); err != nil {
		return nil, errors.Join(err, service.Close())
	}
	return service, nil
}

// AllowTriggersOff returns a configuration for reading, which also opens a database with disabled
// triggers.
func AllowTriggersOff(o *app.Options) (postadjudication.Config, error) {
	config, err := o.ReadOnlyConfig()
	config.AllowUnsuitable = true
	return config, err
}

// warnOfTriggers writes one line to standard error if triggers are disabled.
func warnOfTriggers(ctx context.Context, sh *shell.Shell, service *postadjudication.Service) error {
	off, err := service.Health().TriggersOff(ctx)
	if err == nil && len(off) > 0 {
		sh.Note("warning: " + triggersWarning(off))
	}
	return err
}

// triggersWarning returns what disabled triggers mean to a reader. The order of the commands
// matters: migrate enables the triggers, and then nothing shows that they were disabled.
func triggersWarning(off []string) string {
	return shell.Plural(len(off), "trigger") + " disabled (" + strings.Join(off, ", ") +
		"): evidence can be changed, and this output may show changed data. Run recourse receipts verify and find the cause before you run recourse migrate, which enables the triggers."
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
