package app

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/pgurl"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// The environment variables of the options.
const (
	DatabaseVariable      = "RECOURSE_DATABASE_URL"
	OwnerVariable         = "RECOURSE_OWNER_DATABASE_URL" // for the role that creates databases and schemas; DatabaseVariable if empty
	RedisVariable         = "RECOURSE_REDIS_URL"
	EscrowVariable        = "RECOURSE_ESCROW_URL"
	AuthorizationVariable = "RECOURSE_ESCROW_AUTHORIZATION"
	LogLevelVariable      = "RECOURSE_LOG_LEVEL"
	TargetsVariable       = "RECOURSE_TARGETS"
	PaymentQueuesVariable = "RECOURSE_PAYMENT_QUEUES"
	InsecureVariable      = "RECOURSE_INSECURE_SERVERS"
	ProxyVariable         = "RECOURSE_PROXY_FROM_ENVIRONMENT"
	MetricsListenVariable = "RECOURSE_METRICS_LISTEN"
	WebhookKeyVariable    = "RECOURSE_WEBHOOK_KEY"
)

// DefaultListen is the default address of the pages.
const DefaultListen = "127.0.0.1:8321"

// Options is the configuration of a process.
type Options struct {
	DatabaseURL string // empty with Private: a private Postgres
	RedisURL    string // empty with Private: a Redis in this process
	EscrowURL   string // empty with Embedded: the escrow service for demonstrations
	// Authorization is the Authorization header sent to the escrow service. It is a secret: it is
	// read from the environment only and never printed.
	Authorization string
	// WebhookKey has the keys that encrypt the secrets of webhooks, as webhooks.ParseKeys reads them.
	// It is a secret, too; empty: no webhook can be created, and none is sent.
	WebhookKey    string
	WebhooksAllow []string // networks, such as 10.0.0.0/8, that webhooks may be sent to besides public ones
	Targets       []string // escrow services beside the default one, as NAME or NAME=URL; see BindTargets
	PaymentQueues []string // from which remote workers fetch adjudications
	// TargetAuthorization returns the Authorization header for a target with a URL, by its name. It
	// is a secret, too. No header is sent if the func is nil or returns "".
	TargetAuthorization func(name string) string
	InsecureServers     []string // servers beyond this machine that may be reached without verified TLS; see Routes
	Proxy               bool     // escrow services and the trace collector are called through HTTP_PROXY and HTTPS_PROXY
	TracesURL           string   // of the OTLP collector that spans are exported to; empty: none. From the environment only
	Listen              string   // host:port of the pages; empty means none
	MetricsListen       string   // host:port of /metrics and the full /readyz, without keys; empty: they are served at Listen
	Expose              bool     // allows a Listen beyond loopback
	RequestLog          string   // level at which each request is logged; empty: debug
	RequireKeys         bool     // access keys are required also on loopback with the embedded escrow service
	Tenant              string   // tenant of requests that have no key and name no tenant
	NoOJS               bool     // no jobs, and no /ojs
	NoOpenWOP           bool     // no /v1 and no /.well-known/openwop
	TestMode            bool     // /test/reset and /test/clock; with Private and Embedded only
	Embedded            bool
	KeyLifetime         Lifetime // how long the escrow service recognises an operation key; required with EscrowURL
	// LookupLifetime is how long a lookup knows an operation key; KeyLifetime if not given.
	LookupLifetime    Lifetime
	InFlight          time.Duration                // how long an abandoned call may still be executed; 0: escrowhttp.DefaultInFlight, negative: never
	Asynchronous      time.Duration                // how long an accepted call is asked about; 0: the escrow service ends each call with its answer
	TimeLimit         time.Duration                // time limit of one call of the escrow service
	WorkerKeyLifetime Lifetime                     // how long the payment services of remote workers recognise an operation key; none if not given
	WorkerInFlight    time.Duration                // how long after its lease a remote worker may still pay; 0: nobody can say
	Private           bool                         // Postgres and Redis without a URL are started, and removed by Close
	Breaker           postadjudication.BreakerRule // when circuit breakers open by themselves
	Retention         Retention                    // retention of dead letters
	Lookups           postadjudication.LookupRule  // lookups about dead letters of unknown outcome
	MaxRecoveries     Recoveries                   // lost workers after which a run is still recovered
}

// ErrOptions marks errors that other options or another environment fix.
var ErrOptions = errors.New("")

// optionError returns an error that is ErrOptions.
func optionError(format string, args ...any) error {
	return fmt.Errorf("%w"+format, append([]any{ErrOptions}, args...)...)
}

// BindDatabase defines --database and --insecure-servers.
func (o *Options) BindDatabase(f *pflag.FlagSet) {
	f.StringVar(&o.DatabaseURL, "database", "", "Postgres URL, such as postgres://user@host:5432/name?sslmode=verify-full (default $"+DatabaseVariable+"; put a password only there)")
	o.bindInsecure(f)
}

// BindServers defines the flags for Postgres and Redis.
func (o *Options) BindServers(f *pflag.FlagSet) {
	o.BindDatabase(f)
	f.StringVar(&o.RedisURL, "redis", "", "Redis URL: rediss://host:6379/0, redis:// on this machine, rediss-sentinel://h1:26379,h2:26379/0?master=name or rediss-cluster://h1:6379,h2:6379 (default $"+RedisVariable+"; put a password only there)")
}

// BindReadOnly defines the flags of commands that need no Redis. They accept --redis nevertheless,
// so that scripts can pass the same flags to every command.
func (o *Options) BindReadOnly(f *pflag.FlagSet) {
	o.BindDatabase(f)
	f.StringVar(&o.RedisURL, "redis", "", "accepted, but this command needs no Redis")
}

// BindEscrowTimes defines the flags for key lifetimes and time limits of the escrow service.
func (o *Options) BindEscrowTimes(f *pflag.FlagSet) {
	f.Var(&o.KeyLifetime, "key-lifetime", `how long the escrow service recognises an operation key: a duration such as 24h, "unlimited", or "none" (no repeated call after an unknown outcome)`)
	f.Var(&o.LookupLifetime, "lookup-lifetime", "how long after the first call a lookup that finds nothing proves that nothing was executed (minimum and default: --key-lifetime)")
	f.DurationVar(&o.InFlight, "in-flight", escrowhttp.DefaultInFlight, "how long an abandoned call may still be executed; until then a lookup that finds nothing proves nothing (0: "+escrowhttp.DefaultInFlight.String()+"; -1s: an abandoned call is never executed)")
	f.DurationVar(&o.Asynchronous, "asynchronous", 0, "the escrow service may accept a call (202) and end it later: how long after the first call it is asked about, such as 24h, shorter than --lookup-lifetime (0: an accepted call is one of unknown outcome)")
	f.DurationVar(&o.TimeLimit, "time-limit", 10*time.Second, "time limit of one call of the escrow service")
	f.Var(&o.WorkerKeyLifetime, "worker-key-lifetime", `how long the payment services of remote workers recognise an operation key: a duration, "unlimited" or "none" (default none: a person decides after an unknown outcome, and a repeated fetch is given no adjudication again)`)
	f.DurationVar(&o.WorkerInFlight, "worker-in-flight", 0, "how long after the end of its lease a remote worker may still pay; 0: unknown; a finding of not_executed then needs --call-outstanding")
}

// RemoteWorkers returns what is stated about the payment services of remote workers.
func (o *Options) RemoteWorkers() postadjudication.RemoteWorkers {
	return postadjudication.RemoteWorkers{KeyLifetime: o.WorkerKeyLifetime.Span, InFlight: o.WorkerInFlight}
}

// CheckEscrowTimes returns ErrOptions if the lookup lifetime is shorter than the key lifetime:
// lookups count for as long as keys are recognised. An accepted call is asked about while they count.
func (o *Options) CheckEscrowTimes() error {
	if o.LookupLifetime.Given && o.KeyLifetime.Given && o.LookupLifetime.Span < o.KeyLifetime.Span {
		return optionError("--lookup-lifetime must not be shorter than --key-lifetime: if lookups forget a key sooner, set --key-lifetime to that time")
	}
	if o.Asynchronous > 0 && o.KeyLifetime.Given && o.Asynchronous >= max(o.KeyLifetime.Span, o.LookupLifetime.Span) {
		return optionError("--asynchronous must be shorter than --lookup-lifetime (without one: than --key-lifetime): after that the escrow service can't be asked what became of a call")
	}
	return nil
}

// KeyLifetimeMissing is the error text for a missing --key-lifetime.
const KeyLifetimeMissing = `--key-lifetime is missing: how long the escrow service recognises an operation key, such as 24h, "unlimited" or "none"`

// Bind defines the flags of serve.
func (o *Options) Bind(f *pflag.FlagSet) {
	o.BindServers(f)
	f.StringVar(&o.EscrowURL, "escrow", "", "base URL of the escrow service (default $"+EscrowVariable+"); $"+AuthorizationVariable+" is its Authorization header")
	o.BindTargets(f)
	if DemoBuild {
		f.BoolVar(&o.Embedded, "embedded", false, "start an escrow service for demonstrations if none is named; only on a database that was empty at the first such start; that database can never be used for real money")
	}
	f.StringVar(&o.Listen, "listen", DefaultListen, "address of /api/v1, /ojs, /v1, /asynqmon, /livez, /readyz and /metrics")
	f.StringVar(&o.MetricsListen, "metrics-listen", "", "address of /metrics and a /readyz with all reasons, both without a key; --listen then has no /metrics (default $"+MetricsListenVariable+", else --listen)")
	f.BoolVar(&o.Expose, "expose", false, "allow --listen beyond loopback; access keys are then sent unencrypted: put a TLS proxy in front")
	f.BoolVar(&o.RequireKeys, "require-keys", false, "require access keys also on loopback with the escrow service for demonstrations")
	f.BoolVar(&o.NoOpenWOP, "no-openwop", false, "serve no /v1 and no /.well-known/openwop (OpenWOP)")
	f.BoolVar(&o.NoOJS, "no-ojs", false, "serve no jobs and no /ojs (Open Job Spec)")
	if DemoBuild {
		f.BoolVar(&o.Private, "private", false, "start a Postgres and a Redis of its own if none is named, and remove them at exit")
		f.BoolVar(&o.TestMode, "test-mode", false, "for conformance tests: POST /test/reset gives an empty tenant, POST /test/clock lets time pass; with --private and --embedded, on loopback")
	}
	f.StringVar(&o.Tenant, "tenant", "", "tenant of requests that name none, where no access key is required")
	f.StringVar(&o.RequestLog, "request-log", "debug", "log level of the line for each HTTP request, with its principal: debug, info or warn; written only if --log-level includes it")
	o.BindEscrowTimes(f)
	f.BoolVar(&o.Lookups.Off, "no-auto-lookups", false, "disable automatic lookups about dead letters of unknown outcome")
	f.Var(&o.MaxRecoveries, "max-recoveries", `how many lost workers a run may have: a number, or "unlimited"; the next loss makes it a dead letter, and the sixteenth does in any case`)
	bindBreaker(f, &o.Breaker)
	o.BindWebhooks(f)
	o.BindRetention(f)
}

// FromEnvironment fills options that no flag set.
func (o *Options) FromEnvironment(getenv func(string) string) {
	for _, v := range []struct {
		to   *string
		name string
	}{
		{&o.DatabaseURL, DatabaseVariable}, {&o.RedisURL, RedisVariable}, {&o.EscrowURL, EscrowVariable}, {&o.Authorization, AuthorizationVariable}, {&o.MetricsListen, MetricsListenVariable},
		{&o.WebhookKey, WebhookKeyVariable}, {&o.TracesURL, otlpTracesVariable}, {&o.TracesURL, otlpVariable},
	} {
		if *v.to == "" {
			*v.to = getenv(v.name)
		}
	}
	if o.Targets == nil {
		o.Targets = strings.Fields(getenv(TargetsVariable))
	}
	if o.PaymentQueues == nil {
		o.PaymentQueues = strings.Fields(getenv(PaymentQueuesVariable))
	}
	if o.InsecureServers == nil {
		o.InsecureServers = InsecureFrom(getenv)
	}
	o.Proxy = o.Proxy || ProxyEnabled(getenv)
	o.TargetAuthorization = func(name string) string { return getenv(authorizationVariable(name)) }
}

// check returns ErrOptions for options that are missing, invalid or in conflict.
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
	case o.TestMode && (!o.Private || !o.Embedded || o.DatabaseURL != "" || o.RedisURL != "" || !o.loopback() || o.NoOJS || o.NoOpenWOP || o.RequireKeys):
		return optionError("--test-mode needs --private and --embedded, a --listen on loopback, no named servers, and neither --no-ojs, --no-openwop nor --require-keys")
	case len(o.Tenant) > 128:
		return optionError("--tenant must be at most 128 bytes")
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
	if _, err := o.WebhookConfig(); err != nil {
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
		return optionError("--listen %s is not on loopback, so access keys would be sent unencrypted: add --expose if a TLS proxy is in front of it", o.Listen)
	}
	return nil
}

// loopback reports whether only this machine can reach the pages.
func (o *Options) loopback() bool {
	_, _, err := net.SplitHostPort(o.Listen)
	return err == nil && door.IsLoopbackHost(o.Listen)
}

// ServiceConfig returns the configuration of a service that reads and submits, but executes
// nothing. It needs Redis.
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

// ReadOnlyConfig returns the configuration of a service that works without Redis.
func (o *Options) ReadOnlyConfig() (postadjudication.Config, error) {
	c, err := o.UncheckedReadOnlyConfig()
	if err == nil {
		err = o.CheckTransport()
	}
	return c, err
}

// UncheckedReadOnlyConfig is ReadOnlyConfig without CheckTransport. The doctor uses it to report
// unprotected routes.
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
	c := postadjudication.Config{DatabaseURL: o.DatabaseURL, PaymentQueues: o.PaymentQueues}
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

// CheckDatabaseURL returns ErrOptions for an invalid Postgres URL. The error does not repeat the
// URL, which may contain a password.
func CheckDatabaseURL(databaseURL string) error {
	if _, err := pgurl.Normalize(databaseURL); err != nil {
		return optionError("%w", err)
	}
	return nil
}
