package app

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/internal/pgurl"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// The environment variables that say where the servers are.
const (
	DatabaseVariable      = "RECOURSE_DATABASE_URL"
	OwnerVariable         = "RECOURSE_OWNER_DATABASE_URL" // of what makes databases and schemas; where it is empty, DatabaseVariable
	RedisVariable         = "RECOURSE_REDIS_URL"
	EscrowVariable        = "RECOURSE_ESCROW_URL"
	AuthorizationVariable = "RECOURSE_ESCROW_AUTHORIZATION"
	LogLevelVariable      = "RECOURSE_LOG_LEVEL"
	TargetsVariable       = "RECOURSE_TARGETS"
	InsecureVariable      = "RECOURSE_INSECURE_SERVERS"
	ProxyVariable         = "RECOURSE_PROXY_FROM_ENVIRONMENT"
	MetricsListenVariable = "RECOURSE_METRICS_LISTEN"
)

// DefaultListen is where the pages are when nothing else is said.
const DefaultListen = "127.0.0.1:8321"

// Options are what an operator chooses.
type Options struct {
	DatabaseURL string // empty with Private: a private Postgres
	RedisURL    string // empty with Private: a Redis within the process
	EscrowURL   string // empty with Embedded: the escrow service for demonstrations
	// Authorization is the header sent to the escrow service. It is a secret: it
	// comes from the environment only and is never printed.
	Authorization string
	Targets       []string // escrow services beside the default one, as NAME or NAME=URL; see BindTargets
	// TargetAuthorization is the header sent to a target that has a URL, by its name: a secret as
	// Authorization. None is sent where it is nil or answers empty.
	TargetAuthorization func(name string) string
	InsecureServers     []string // servers beyond this machine whose way is trusted; see Routes
	Proxy               bool     // calls the escrow services by the proxy that HTTP_PROXY and HTTPS_PROXY name
	Listen              string   // host:port of the pages; empty means none
	MetricsListen       string   // host:port of /metrics and of /readyz in full, for whoever reaches it; empty: they are where the pages are
	Expose              bool     // allows a Listen beyond loopback
	RequestLog          string   // level at which each request is logged; empty: debug
	RequireKeys         bool     // asks for access keys on loopback with the embedded escrow service, too
	Tenant              string   // of requests without a key that name none
	Embedded            bool
	KeyLifetime         Lifetime // how long the escrow service recognises an operation key; to be said where EscrowURL is
	// LookupLifetime is how long a lookup tells what became of a key; KeyLifetime when it was not said.
	LookupLifetime Lifetime
	InFlight       time.Duration                // for how long a call that was given up may still be executed; 0: escrowhttp.DefaultInFlight, less: none ever is
	TimeLimit      time.Duration                // of one call of the escrow service
	Private        bool                         // what has no URL is started, and gone after Close
	Breaker        postadjudication.BreakerRule // when circuit breakers open by themselves
	Retention      Retention                    // of dead letters
	Lookups        postadjudication.LookupRule  // how dead letters of unknown outcome are asked about
	MaxRecoveries  Recoveries                   // from how many lost workers a run is recovered
}

// ErrOptions marks every error that only other options or another environment cure.
var ErrOptions = errors.New("")

// optionError is an error about the options.
func optionError(format string, args ...any) error {
	return fmt.Errorf("%w"+format, append([]any{ErrOptions}, args...)...)
}

// BindDatabase defines the flag that says where Postgres is.
func (o *Options) BindDatabase(f *pflag.FlagSet) {
	f.StringVar(&o.DatabaseURL, "database", "", "Postgres, as postgres://user@host:5432/name?sslmode=verify-full (default $"+DatabaseVariable+"; a password only there)")
	o.bindInsecure(f)
}

// BindServers defines the flags that say where Postgres and Redis are.
func (o *Options) BindServers(f *pflag.FlagSet) {
	o.BindDatabase(f)
	f.StringVar(&o.RedisURL, "redis", "", "Redis, as rediss://host:6379/0, redis:// on this machine, rediss-sentinel://h1:26379,h2:26379/0?master=name or rediss-cluster://h1:6379,h2:6379 (default $"+RedisVariable+"; a password only there)")
}

// BindReadOnly defines the flags of what needs no Redis: --redis is taken, as elsewhere.
func (o *Options) BindReadOnly(f *pflag.FlagSet) {
	o.BindDatabase(f)
	f.StringVar(&o.RedisURL, "redis", "", "Redis, which is not needed here")
}

// BindEscrowTimes defines the flags that say what a lookup proves, and for how long.
func (o *Options) BindEscrowTimes(f *pflag.FlagSet) {
	f.Var(&o.KeyLifetime, "key-lifetime", `how long the escrow service recognises an operation key: a span as 24h, "unlimited", or "none" (then nothing is called again after an unknown outcome)`)
	f.Var(&o.LookupLifetime, "lookup-lifetime", "for how long after the first call a lookup that finds nothing proves that nothing was executed (default, and at least: --key-lifetime)")
	f.DurationVar(&o.InFlight, "in-flight", escrowhttp.DefaultInFlight, "for how long a call that was given up may still be executed; until then a lookup that finds nothing proves nothing (0: "+escrowhttp.DefaultInFlight.String()+"; -1s: none ever is)")
	f.DurationVar(&o.TimeLimit, "time-limit", 10*time.Second, "of one call of the escrow service")
}

// CheckEscrowTimes refuses a lookup lifetime that is shorter than the key lifetime: lookups
// are believed for as long as keys are recognised. The error is ErrOptions.
func (o *Options) CheckEscrowTimes() error {
	if o.LookupLifetime.Given && o.KeyLifetime.Given && o.LookupLifetime.Span < o.KeyLifetime.Span {
		return optionError("--lookup-lifetime must not be shorter than --key-lifetime: where lookups forget a key sooner, say that as --key-lifetime")
	}
	return nil
}

// KeyLifetimeMissing is what an operator is told who has not said it.
const KeyLifetimeMissing = `how long the escrow service recognises an operation key must be said: --key-lifetime with a span as 24h, "unlimited", or "none"`

// Bind defines the flags of a process that executes.
func (o *Options) Bind(f *pflag.FlagSet) {
	o.BindServers(f)
	f.StringVar(&o.EscrowURL, "escrow", "", "base URL of the escrow service (default $"+EscrowVariable+"); $"+AuthorizationVariable+" is sent to it")
	o.BindTargets(f)
	if DemoBuild {
		f.BoolVar(&o.Embedded, "embedded", false, "start an escrow service for demonstrations when none is named; only on a database that was empty when this was done first, and never for real money after that")
	}
	f.StringVar(&o.Listen, "listen", DefaultListen, "where to serve /api/v1, /asynqmon, /livez, /readyz and /metrics")
	f.StringVar(&o.MetricsListen, "metrics-listen", "", "where to serve /metrics, and /readyz with all reasons, to whoever reaches it, without a key; they are not on --listen then (default $"+MetricsListenVariable+", else on --listen)")
	f.BoolVar(&o.Expose, "expose", false, "allow --listen beyond loopback, where keys travel in the clear: put TLS in front")
	f.BoolVar(&o.RequireKeys, "require-keys", false, "ask for access keys also on loopback with the escrow service for demonstrations")
	f.StringVar(&o.RequestLog, "request-log", "debug", "level at which each request is logged, with its principal: debug, info or warn; seen from --log-level on")
	o.BindEscrowTimes(f)
	f.BoolVar(&o.Lookups.Off, "no-auto-lookups", false, "ask about dead letters of unknown outcome only when a person does")
	f.Var(&o.MaxRecoveries, "max-recoveries", `from how many lost workers a run is recovered: a number, or "unlimited"; the next loss makes it a dead letter`)
	bindBreaker(f, &o.Breaker)
	o.Retention.bind(f)
}

// FromEnvironment fills what no flag said.
func (o *Options) FromEnvironment(getenv func(string) string) {
	for _, v := range []struct {
		to   *string
		name string
	}{
		{&o.DatabaseURL, DatabaseVariable}, {&o.RedisURL, RedisVariable}, {&o.EscrowURL, EscrowVariable}, {&o.Authorization, AuthorizationVariable}, {&o.MetricsListen, MetricsListenVariable},
	} {
		if *v.to == "" {
			*v.to = getenv(v.name)
		}
	}
	if o.Targets == nil {
		o.Targets = targetsFrom(getenv(TargetsVariable))
	}
	if o.InsecureServers == nil {
		o.InsecureServers = InsecureFrom(getenv)
	}
	o.Proxy = o.Proxy || ProxyEnabled(getenv)
	o.TargetAuthorization = func(name string) string { return getenv(authorizationVariable(name)) }
}

// check refuses options that cannot work. Its errors are ErrOptions.
func (o *Options) check() error {
	switch {
	case o.DatabaseURL == "" && !o.Private:
		return optionError("no Postgres is named: set %s or --database", DatabaseVariable)
	case o.RedisURL == "" && !o.Private:
		return optionError("no Redis is named: set %s or --redis", RedisVariable)
	case o.EscrowURL == "" && !o.Embedded:
		return optionError("no escrow service is named: set %s or --escrow%s", EscrowVariable, embeddedHint)
	case o.EscrowURL != "" && !o.KeyLifetime.Given:
		return optionError(KeyLifetimeMissing)
	case o.TimeLimit <= 0:
		return optionError("--time-limit must be positive")
	case o.TimeLimit > 24*time.Hour:
		return optionError("--time-limit must be 24h at most")
	}
	if err := o.CheckEscrowTimes(); err != nil {
		return err
	}
	if _, err := o.Retention.rules(); err != nil {
		return err
	}
	if err := checkBreaker(o.Breaker); err != nil {
		return err
	}
	if _, err := o.requestLevel(); err != nil {
		return err
	}
	if err := o.checkListen(); err != nil {
		return err
	}
	return o.CheckTransport()
}

// requestLevel returns the level at which each request is logged.
func (o *Options) requestLevel() (zapcore.Level, error) {
	if o.RequestLog == "" {
		return zapcore.DebugLevel, nil
	}
	level, err := zapcore.ParseLevel(o.RequestLog)
	if err != nil || level > zapcore.WarnLevel {
		return level, optionError("--request-log must be debug, info or warn, not %q", o.RequestLog)
	}
	return level, nil
}

func (o *Options) checkListen() error {
	if _, _, err := net.SplitHostPort(o.MetricsListen); err != nil && o.MetricsListen != "" {
		return optionError("--metrics-listen %q is not host:port", o.MetricsListen)
	}
	if o.Listen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		return optionError("--listen %q is not host:port", o.Listen)
	}
	if !o.loopback() && !o.Expose {
		return optionError("--listen %s is not on loopback, and access keys would travel in the clear: add --expose when TLS is in front of it", o.Listen)
	}
	return nil
}

// loopback reports whether only this machine reaches the pages.
func (o *Options) loopback() bool { return loopbackAddress(o.Listen) }

// loopbackAddress reports whether only this machine reaches what listens at host:port.
func loopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// ServiceConfig is the configuration of a service that hands over and looks, but
// executes nothing.
func (o *Options) ServiceConfig() (postadjudication.Config, error) {
	c, err := o.UncheckedReadOnlyConfig()
	if err == nil && c.Redis == nil {
		err = optionError("no Redis is named: set %s or --redis", RedisVariable)
	}
	if err == nil {
		err = o.CheckTransport()
	}
	return c, err
}

// ReadOnlyConfig is the configuration of a service that only looks. It needs no Redis.
func (o *Options) ReadOnlyConfig() (postadjudication.Config, error) {
	c, err := o.UncheckedReadOnlyConfig()
	if err == nil {
		err = o.CheckTransport()
	}
	return c, err
}

// UncheckedReadOnlyConfig is Look without CheckTransport. The doctor uses it to tell of routes that are not
// protected.
func (o *Options) UncheckedReadOnlyConfig() (postadjudication.Config, error) {
	if o.DatabaseURL == "" {
		return postadjudication.Config{}, optionError("no Postgres is named: set %s or --database", DatabaseVariable)
	}
	if err := CheckDatabaseURL(o.DatabaseURL); err != nil {
		return postadjudication.Config{}, err
	}
	targets, err := o.targets()
	if err != nil {
		return postadjudication.Config{}, err
	}
	c := postadjudication.Config{DatabaseURL: o.DatabaseURL}
	for _, t := range targets {
		c.Targets = append(c.Targets, postadjudication.Target{Name: t.name})
	}
	if o.RedisURL != "" {
		opt, err := ParseRedis(o.RedisURL)
		if err != nil {
			return postadjudication.Config{}, err
		}
		c.Redis = opt
	}
	return c, o.Retention.apply(&c)
}

// CheckDatabaseURL refuses what is no URL of a Postgres. The error is ErrOptions
// and does not repeat the URL, which may hold a password.
func CheckDatabaseURL(databaseURL string) error {
	if _, err := pgurl.Normalize(databaseURL); err != nil {
		return optionError("%w", err)
	}
	return nil
}
