package backend

import (
	"context"
	"errors"
	"strings"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Open opens a service that hands over and looks.
func Open(ctx context.Context, sh *shell.Shell, o app.Options) (*postadjudication.Service, error) {
	return OpenWith(ctx, sh, o, (*app.Options).ServiceConfig)
}

// OpenReadOnly opens a service that only looks, also at a database whose triggers are not in force.
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

// AllowTriggersOff is for what only reads: what may have been changed can be read.
func AllowTriggersOff(o *app.Options) (postadjudication.Config, error) {
	config, err := o.ReadOnlyConfig()
	config.AllowUnsuitable = true
	return config, err
}

// warnOfTriggers tells in one line of triggers that are not in force. It goes to standard
// error, so that what is read stays as it is.
func warnOfTriggers(ctx context.Context, sh *shell.Shell, service *postadjudication.Service) error {
	off, err := service.TriggersOff(ctx)
	if err == nil && len(off) > 0 {
		sh.Note("warning: " + triggersWarning(off))
	}
	return err
}

// triggersWarning says what triggers that are not in force mean to who reads. The order of
// the commands matters: migrate takes away the trace that they were off.
func triggersWarning(off []string) string {
	return shell.Plural(len(off), "trigger") + " not in force (" + strings.Join(off, ", ") +
		"): evidence can be changed, and what is read here may have been. Run recourse receipts verify; run recourse migrate, which puts them in force, only after it was looked into."
}

// OpenWith opens a service by a configuration that is read off the options.
func OpenWith(ctx context.Context, sh *shell.Shell, o app.Options, configure func(*app.Options) (postadjudication.Config, error)) (*postadjudication.Service, error) {
	o.FromEnvironment(sh.Getenv)
	config, err := configure(&o)
	if err != nil {
		return nil, err
	}
	return postadjudication.Open(ctx, config)
}
