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
)

const (
	// timeLimit of one call of the escrow service: less than its late answers take.
	timeLimit = 400 * time.Millisecond
	// keyLifetime is for how long the escrow service recognises an operation key, it
	// says: far longer than it is played, and less than the clock is set forward.
	keyLifetime = 24 * time.Hour
)

// Options of a demonstration.
type Options struct {
	Input       io.Reader // JSON lines, as package intake reads them
	DatabaseURL string    // a server to be a guest of; empty: a private one
	OwnerURL    string    // the same, for a role that makes databases; empty: DatabaseURL is
	Insecure    []string  // servers beyond this machine whose way is trusted
	RedisURL    string    // likewise; empty: one within the process
	Listen      string    // host:port of the pages; empty means none
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

// Start brings up servers, schema, escrow service and workers. Whatever it
// returns, call Close.
func Start(ctx context.Context, o Options) (*Demo, error) {
	d := &Demo{options: o, began: time.Now(), tracker: newRunTracker()}
	chosen, err := d.servers(ctx)
	if err != nil {
		return d, err
	}
	d.main = &app.Main{Options: chosen, Log: o.Log, OnMove: d.tracker.onTransition, Now: d.clock.now, DemoHandler: d.controlRoutes()}
	if err := d.main.Parse(func(string) string { return "" }); err != nil {
		return d, err
	}
	d.onClose(d.main.Close)
	if err := d.main.Start(ctx); err != nil {
		return d, err
	}
	// Work ends in Close, after the last look, and not when an audience leaves.
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	d.end = end
	d.work.Go(func() { d.workErr = d.main.Run(working) })
	return d, nil
}

// servers finds a place on the servers that are named.
func (d *Demo) servers(ctx context.Context) (app.Options, error) {
	out := app.Options{Private: true, Embedded: true, TimeLimit: timeLimit, KeyLifetime: app.Lifetime{Span: keyLifetime, Given: true}, Listen: d.options.Listen, Expose: d.options.Expose}
	// It can be asked about a key for longer than it takes one again; here only the audience asks.
	out.LookupLifetime = app.Lifetime{Span: postadjudication.Forever, Given: true}
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

// usesForeignPostgres reports whether the Postgres is somebody else's.
func (d *Demo) usesForeignPostgres() bool {
	return d.options.DatabaseURL != "" || d.options.OwnerURL != ""
}

// database makes a database with the schema on the server that is named, and returns the URL by
// which it is worked on: that of the role which owns nothing, where one is named beside the
// owner. A guest makes no roles.
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

// URL is where the pages are; empty when there are none.
func (d *Demo) URL() string { return d.main.URL }

// Database is the URL of the database. It has the password of a server of the demonstration's
// own. That of a server that was named is left out, which PGPASSWORD may hold.
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

// Archive is the directory that removed letters go into. It goes with the
// demonstration.
func (d *Demo) Archive() string { return d.main.Options.Retention.Archive }

func (d *Demo) onClose(f func() error) { d.closers = append(d.closers, f) }

// Close ends the work and takes everything away that Start brought.
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
