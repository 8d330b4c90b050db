package app

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// webhookKey is a key that encrypts the secrets of webhooks.
const webhookKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func validOptions() Options {
	return Options{DatabaseURL: "postgres://u@h/d?sslmode=verify-full", RedisURL: "rediss://h", EscrowURL: "https://h", Listen: DefaultListen, TimeLimit: time.Second, KeyLifetime: Lifetime{Given: true}}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Options)
		word   string // empty: accepted
	}{
		"sound":                     {func(*Options) {}, ""},
		"no Postgres":               {func(o *Options) { o.DatabaseURL = "" }, DatabaseVariable},
		"no Redis":                  {func(o *Options) { o.RedisURL = "" }, RedisVariable},
		"no escrow service":         {func(o *Options) { o.EscrowURL = "" }, "--embedded"},
		"embedded escrow service":   {func(o *Options) { o.EscrowURL, o.Embedded = "", true }, ""},
		"private servers":           {func(o *Options) { o.DatabaseURL, o.RedisURL, o.Private = "", "", true }, ""},
		"no key lifetime":           {func(o *Options) { o.KeyLifetime = Lifetime{} }, "--key-lifetime"},
		"embedded, no key lifetime": {func(o *Options) { o.EscrowURL, o.Embedded, o.KeyLifetime = "", true, Lifetime{} }, ""},
		"a lookup lifetime too short": {func(o *Options) {
			o.KeyLifetime, o.LookupLifetime = Lifetime{time.Hour, true}, Lifetime{time.Minute, true}
		}, "--lookup-lifetime"},
		"a lookup lifetime of its own":               {func(o *Options) { o.KeyLifetime, o.LookupLifetime = Lifetime{0, true}, Lifetime{time.Minute, true} }, ""},
		"accepted calls longer than a lookup counts": {func(o *Options) { o.KeyLifetime, o.Asynchronous = Lifetime{time.Hour, true}, time.Hour }, "--asynchronous"},
		"accepted calls while a lookup counts": {func(o *Options) {
			o.KeyLifetime, o.LookupLifetime, o.Asynchronous = Lifetime{time.Hour, true}, Lifetime{2 * time.Hour, true}, time.Hour
		}, ""},
		"no time limit":                              {func(o *Options) { o.TimeLimit = 0 }, "--time-limit"},
		"a time limit without end":                   {func(o *Options) { o.TimeLimit = math.MaxInt64 }, "--time-limit"},
		"all interfaces":                             {func(o *Options) { o.Listen = ":8321" }, "--expose"},
		"all interfaces by number":                   {func(o *Options) { o.Listen = "0.0.0.0:8321" }, "--expose"},
		"a name":                                     {func(o *Options) { o.Listen = "example.com:8321" }, "--expose"},
		"all interfaces, on purpose":                 {func(o *Options) { o.Listen, o.Expose = ":8321", true }, ""},
		"loopback of IPv6":                           {func(o *Options) { o.Listen = "[::1]:8321" }, ""},
		"localhost":                                  {func(o *Options) { o.Listen = "localhost:0" }, ""},
		"no port":                                    {func(o *Options) { o.Listen = "127.0.0.1" }, "host:port"},
		"no pages":                                   {func(o *Options) { o.Listen = "" }, ""},
		"metrics of their own":                       {func(o *Options) { o.MetricsListen = ":9321" }, ""},
		"networks for webhooks":                      {func(o *Options) { o.WebhooksAllow = []string{"127.0.0.0/8", "fd00::/8"} }, ""},
		"an address for webhooks":                    {func(o *Options) { o.WebhooksAllow = []string{"10.0.0.0/8", "127.0.0.1"} }, `--webhooks-allow "127.0.0.1"`},
		"a network that is cut off wrongly":          {func(o *Options) { o.WebhooksAllow = []string{"127.0.0.1/8"} }, `--webhooks-allow "127.0.0.1/8"`},
		"a network of version 4 as one of version 6": {func(o *Options) { o.WebhooksAllow = []string{"::ffff:10.0.0.0/104"} }, "--webhooks-allow"},
		"keys for webhooks":                          {func(o *Options) { o.WebhookKey = webhookKey + " , " + webhookKey }, ""},
		"a short key for webhooks":                   {func(o *Options) { o.WebhookKey = webhookKey + ",aHVzaA==" }, WebhookKeyVariable + ": key 2"},
		"metrics without a port":                     {func(o *Options) { o.MetricsListen = "127.0.0.1" }, "--metrics-listen"},
	} {
		o := validOptions()
		tc.change(&o)
		err := o.check()
		switch {
		case tc.word == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.word != "" && (!errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), tc.word)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeyLifetimesAreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]time.Duration{"24h": 24 * time.Hour, "90m": 90 * time.Minute, "unlimited": escrow.Forever, "none": 0} {
		var o Options
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Bind(f)
		if err := f.Parse([]string{"--key-lifetime", said, "--lookup-lifetime=" + said}); err != nil {
			t.Fatal(err)
		}
		if !o.KeyLifetime.Given || o.KeyLifetime.Span != want || o.LookupLifetime.Span != want {
			t.Errorf("%s: %+v", said, o.KeyLifetime)
		}
		if again := o.KeyLifetime.String(); again != said && again != want.String() {
			t.Errorf("%s is formatted as %s", said, again)
		}
	}
	for _, wrong := range []string{"0", "0s", "-1h", "", "forever", "24", "100001d", "9999999999d", "+7d", "-7d", "0x7d"} {
		if err := new(Lifetime).Set(wrong); err == nil {
			t.Errorf("%q is a lifetime", wrong)
		}
	}
}

func TestAFlagBeatsTheEnvironment(t *testing.T) {
	t.Parallel()
	var o Options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Bind(f)
	if err := f.Parse([]string{"--redis", "redis://flag"}); err != nil {
		t.Fatal(err)
	}
	o.FromEnvironment(func(name string) string { return "env:" + name })
	if o.RedisURL != "redis://flag" || o.DatabaseURL != "env:"+DatabaseVariable || o.EscrowURL != "env:"+EscrowVariable || o.Authorization != "env:"+AuthorizationVariable || o.MetricsListen != "env:"+MetricsListenVariable || o.WebhookKey != "env:"+WebhookKeyVariable {
		t.Errorf("%+v", o)
	}
	if o.Listen != DefaultListen || o.TimeLimit != 10*time.Second {
		t.Errorf("defaults: %+v", o)
	}
}

func TestAWebhookKeyThatCannotBeReadIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"hush", "aHVzaA==", webhookKey + "hush", webhookKey + ",hush"} {
		o := validOptions()
		o.WebhookKey = bad
		if err := o.check(); !errors.Is(err, ErrOptions) || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "aHVz") || strings.Contains(err.Error(), webhookKey) {
			t.Errorf("%v", err)
		}
	}
}

func TestAURLThatCannotBeReadIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"postgres://u:hush@h:x/d", "mysql://u:hush@h/d", "hush"} {
		if err := CheckDatabaseURL(bad); !errors.Is(err, ErrOptions) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%v", err)
		}
	}
}

func TestOnlyLoopbackIsLoopback(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:1": true, "[::1]:8321": true, "localhost:8321": true,
		"": false, ":8321": false, "0.0.0.0:8321": false, "[::]:8321": false, "example.com:8321": false, "10.0.0.1:8321": false, "127.0.0.1": false,
	} {
		o := Options{Listen: listen}
		if o.loopback() != want {
			t.Errorf("%q: %v", listen, !want)
		}
	}
}

func TestRecoveriesAreANumberOrUnlimited(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]struct {
		value Recoveries
		text  string
	}{"": {0, "5"}, "--max-recoveries=1": {1, "1"}, "--max-recoveries=12": {12, "12"}, "--max-recoveries=unlimited": {-1, "unlimited"}} {
		var o Options
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Bind(f)
		var args []string
		if flag != "" {
			args = []string{flag}
		}
		if err := f.Parse(args); err != nil || o.MaxRecoveries != want.value || o.MaxRecoveries.String() != want.text {
			t.Errorf("%q: %d, formatted as %s, %v", flag, o.MaxRecoveries, o.MaxRecoveries.String(), err)
		}
	}
	for _, bad := range []string{"0", "-1", "none", "", "5.0", "1000001"} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		new(Options).Bind(f)
		if err := f.Parse([]string{"--max-recoveries=" + bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
