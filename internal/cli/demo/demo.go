package demo

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

const (
	// timeLimit of one call of the escrow service is shorter than its late answers take.
	timeLimit = 400 * time.Millisecond
	// keyLifetime is how long the escrow service recognises an operation key: much longer than a
	// demonstration takes, and less than people advance the clock.
	keyLifetime = 24 * time.Hour
)

// Options of a demonstration.
type Options struct {
	Input       io.Reader // JSON lines, as package intake reads them
	DatabaseURL string    // Postgres to create a database on; empty: a private one
	OwnerURL    string    // the same for a role that creates databases; empty: DatabaseURL
	Insecure    []string  // servers beyond this machine that may be reached without verified TLS
	RedisURL    string    // Redis to use an empty logical database of; empty: a Redis in this process
	Listen      string    // host:port of the pages; empty: none
	Expose      bool
	Progress    io.Writer // for people; bars are shown on terminals only
	Log         *zap.Logger
}

// Demo is a demonstration that has been started.
type Demo struct {
	options Options
	began   time.Time
	main    *app.Main
	clock   clock
	tracker *runTracker
	work    sync.WaitGroup
	end     context.CancelFunc
	workErr error
	closers []func() error
}

// Start starts servers, schema, escrow service and workers. Call Close also after an error.
func Start(ctx context.Context, o Options) (*Demo, error) {
	d := &Demo{options: o, began: time.Now(), tracker: newRunTracker()}
	chosen, err := d.servers(ctx)
	if err != nil {
		return d, err
	}
	d.main = &app.Main{Options: chosen, Log: o.Log, OnTransition: d.tracker.onTransition, Now: d.clock.now, DemoHandler: d.controlRoutes()}
	if err := d.main.Parse(func(string) string { return "" }); err != nil {
		return d, err
	}
	d.onClose(d.main.Close)
	if err := d.main.Start(ctx); err != nil {
		return d, err
	}
	// The work ends in Close, after the last read, and not when ctx ends.
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	d.end = end
	d.work.Go(func() { d.workErr = d.main.Run(working) })
	return d, nil
}

// servers returns the options of app.Main, with a fresh database and an empty logical Redis
// database on the named servers.
func (d *Demo) servers(ctx context.Context) (app.Options, error) {
	out := app.Options{Private: true, Embedded: true, TimeLimit: timeLimit, KeyLifetime: app.Lifetime{Span: keyLifetime, Given: true}, Listen: d.options.Listen, Expose: d.options.Expose}
	// Lookups know a key for longer than calls do; in a demonstration only people start lookups.
	out.LookupLifetime = app.Lifetime{Span: escrow.Forever, Given: true}
	out.Lookups.Off = true
	named := app.Options{DatabaseURL: d.options.DatabaseURL, RedisURL: d.options.RedisURL, InsecureServers: d.options.Insecure}
	if err := named.CheckTransport(); err != nil {
		return out, err
	}
	asOwner := app.Options{DatabaseURL: d.options.OwnerURL, InsecureServers: named.InsecureServers}
	if err := asOwner.CheckTransport(); err != nil {
		return out, err
	}
	out.InsecureServers = named.InsecureServers
	archive, err := os.MkdirTemp("", "recourse-demo-archive-")
	if err != nil {
		return out, err
	}
	d.onClose(func() error { return os.RemoveAll(archive) })
	out.Retention.Archive = archive
	if d.usesForeignPostgres() {
		if out.DatabaseURL, err = d.database(ctx); err != nil {
			return out, err
		}
	}
	if d.options.RedisURL != "" {
		redisURL, leave, err := borrowRedis(ctx, d.options.RedisURL)
		if err != nil {
			return out, err
		}
		d.onClose(leave)
		out.RedisURL = redisURL
	}
	return out, nil
}

// usesForeignPostgres reports whether a Postgres was named.
func (d *Demo) usesForeignPostgres() bool {
	return d.options.DatabaseURL != "" || d.options.OwnerURL != ""
}

// database creates a database with the schema on the named server, and returns its URL: for the
// role that owns nothing, if both roles are named. It creates no roles.
func (d *Demo) database(ctx context.Context) (string, error) {
	fresh, drop, err := app.FreshDatabase(ctx, cmp.Or(d.options.OwnerURL, d.options.DatabaseURL), "recourse_demo")
	if err != nil {
		return "", err
	}
	d.onClose(drop)
	m := postadjudication.Migration{DatabaseURL: fresh}
	worked := fresh
	if d.options.OwnerURL != "" && d.options.DatabaseURL != "" && d.options.OwnerURL != d.options.DatabaseURL {
		if worked, m.AppRole, err = app.OtherDatabase(d.options.DatabaseURL, fresh); err != nil {
			return "", err
		}
	}
	_, err = m.Run(ctx)
	return worked, err
}

// URL returns the URL of the pages; empty if there are none.
func (d *Demo) URL() string { return d.main.URL }

// Database returns the URL of the database, with the password of a private server. It leaves out
// the password of a named server, which PGPASSWORD may hold.
func (d *Demo) Database() (string, error) {
	u, err := url.Parse(d.main.DatabaseURL)
	if err != nil {
		return "", errors.New("the Postgres URL can't be read")
	}
	if _, secret := u.User.Password(); secret && d.usesForeignPostgres() {
		u.User = url.User(u.User.Username())
	}
	return u.String(), nil
}

// Archive returns the directory of removed letters. Close removes it.
func (d *Demo) Archive() string { return d.main.Options.Retention.Archive }

func (d *Demo) onClose(f func() error) { d.closers = append(d.closers, f) }

// Close stops the work and removes everything that Start created.
func (d *Demo) Close() error {
	if d.end != nil {
		d.end()
	}
	d.work.Wait()
	errs := []error{d.workErr}
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i]())
	}
	d.closers = nil
	return errors.Join(errs...)
}
