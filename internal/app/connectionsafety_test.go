package app

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// Servers beyond this machine need verified TLS, unless --insecure-servers lists them. No error
// repeats a URL.
func TestRemoteServersMustAuthenticate(t *testing.T) {
	t.Parallel()
	for server, ways := range map[string]map[string]Protection{
		PostgresServer: {
			"postgres://u:hush@h/d?sslmode=verify-full": Verified, "postgres://u:hush@h/d?sslmode=verify-ca": Unverified,
			"postgres://u:hush@h/d?sslmode=verify-ca&sslrootcert=/etc/ours.pem": Verified,
			"postgres://u:hush@h1,h2/d?sslmode=verify-full":                     Verified, "postgres://u:hush@h1,h2/d?sslmode=require": Unverified,
			"postgres://u:hush@h/d?sslmode=require": Unverified, "postgres://u:hush@h/d": Unverified,
			"postgres://u:hush@h/d?sslmode=disable": Plaintext, "postgres://u:hush@h/d?sslmode=prefer": Plaintext, "postgres://u:hush@h/d?sslmode=allow": Plaintext,
			"postgres://u:hush@127.0.0.1/d?sslmode=disable": Local, "postgres://u:hush@[::1]:5433/d": Local, "postgres://u:hush@localhost/d?sslmode=disable": Local,
			"postgres://u:hush@%2Frun%2Fpostgresql/d": Local, "postgres://u:hush@/d?host=/run/postgresql": Local,
			"postgres://u:hush@127.0.0.1,h2/d?sslmode=disable": Plaintext, "postgres://u:hush@localhost/d?host=h&sslmode=disable": Plaintext,
			"postgres://u:hush@localhost/d?hostaddr=192.0.2.1&sslmode=disable": Plaintext,
		},
		RedisServer: {
			"redis://:hush@h": Plaintext, "rediss://:hush@h": Verified, "redis://:hush@127.0.0.1": Local, "redis://:hush@[::1]:6379": Local, "redis://localhost": Local,
			"redis-sentinel://h1,h2/0?master=m": Plaintext, "rediss-sentinel://h1,h2/0?master=m": Verified, "redis-cluster://127.0.0.1,h2": Plaintext, "redis-cluster://127.0.0.1,[::1]": Local,
		},
		EscrowServer: {
			"http://192.0.2.1/hush": Plaintext, "https://192.0.2.1/hush": Verified, "http://localhost:1/hush": Local, "http://127.9.9.9/hush": Local, "http://[::1]/hush": Local,
			"http://localhost.example/hush": Plaintext, "http://[::ffff:127.0.0.1]/hush": Local,
		},
		TraceCollector: {"http://192.0.2.1/hush": Plaintext, "https://192.0.2.1/hush": Verified, "http://localhost:4318": Local},
	} {
		for url, want := range ways {
			for _, said := range []bool{false, true} {
				o := validOptions()
				switch server {
				case PostgresServer:
					o.DatabaseURL = url
				case RedisServer:
					o.RedisURL = url
				case EscrowServer:
					o.EscrowURL = url
				case TraceCollector:
					o.TracesURL = url
				}
				if said {
					o.InsecureServers = []string{server}
				}
				routes, err := o.Routes()
				if err != nil {
					t.Fatalf("%s: %v", url, err)
				}
				for _, r := range routes {
					if r.Server == server && r.Protection != want {
						t.Errorf("%s: %s, want %s", url, r.Protection, want)
					}
				}
				err = o.check()
				if refused := !want.Safe() && !said; refused != errors.Is(err, ErrOptions) || err != nil && (!refused || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "--insecure-servers "+server)) {
					t.Errorf("%s, said %v: %v", url, said, err)
				}
			}
		}
	}
	o := validOptions()
	o.Targets = []string{"bank=http://bank.example"}
	if err := o.check(); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "bank") {
		t.Errorf("a target: %v", err)
	}
	o = validOptions()
	o.InsecureServers = []string{"all"}
	if err := o.check(); !errors.Is(err, ErrOptions) {
		t.Errorf("an unknown server: %v", err)
	}
	o = validOptions()
	o.DatabaseURL = "postgres://u@h/d?sslmode=hush"
	if _, err := o.Routes(); !errors.Is(err, ErrOptions) || strings.Contains(err.Error(), "hush") {
		t.Errorf("an sslmode that is none: %v", err)
	}
}

// A proxy of the environment can read plaintext requests, so it is used only on request.
// TestAnAddressThatIsNoURLIsNotCalledRemote: who leaves out the scheme is told what to write, and not that the host is beyond this machine.
func TestAnAddressThatIsNoURLIsNotCalledRemote(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"127.0.0.1:9411", "localhost:9411", "localhost", "ftp://localhost", "https://", "http://u:hush@127.0.0.1:hush"} {
		o := validOptions()
		o.EscrowURL, o.InsecureServers = text, []string{EscrowServer}
		named := validOptions()
		named.Targets = []string{"bank=" + text}
		for _, o := range []*Options{&o, &named} {
			if err := o.CheckTransport(); !errors.Is(err, ErrOptions) || strings.Contains(err.Error(), "beyond") || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestAProxyIsUsedOnlyWhereItIsAskedFor(t *testing.T) {
	proxied := make(chan string, 8)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusTeapot)
	}))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL) // Go reads it once in a process
	for _, asked := range []string{"", "true"} {
		o := validOptions()
		o.EscrowURL, o.InsecureServers, o.Authorization = "http://escrow.invalid", []string{EscrowServer}, "Bearer x"
		o.FromEnvironment(func(name string) string { return map[string]string{ProxyVariable: asked}[name] })
		e, err := o.OpenEscrow()
		if err != nil {
			t.Fatal(err)
		}
		e.Executor.Execute(t.Context(), escrow.Call{Request: []byte("{}")})
		e.Close()
		if got := len(proxied); got != len(asked)/len("true") {
			t.Errorf("asked %q: the proxy was called %d times", asked, got)
		}
	}
}
