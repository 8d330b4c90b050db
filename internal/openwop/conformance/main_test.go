package conformance_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/internal/testkit/program"
)

// host is a host under test.
type host struct {
	name  string
	url   string
	key   string // empty: it requires none
	other string // a key of another tenant; empty: none
	clock bool   // time passes by POST /test/clock
}

// hosts are the hosts under test.
var hosts []*host

// serveWithKeys starts a host as production has it: with named servers, here a Postgres and a Redis that
// cmd/sandbox starts and removes, with a role that owns nothing, and with keys that the command line made.
// $0 is the program, $1 the URL of an escrow service that pays, or fails as an adjudication says.
const serveWithKeys = `set -e
RECOURSE_DATABASE_URL=$RECOURSE_OWNER_DATABASE_URL "$0" migrate --app-role recourse_app >&2
for tenant in acme umbrella; do
  "$0" keys create --tenant $tenant --principal service:conformance --roles submitter,operator --actor user:ada --reason 'the conformance test' --json
done
exec "$0" serve --escrow "$1" --key-lifetime unlimited --breaker-manual --listen 127.0.0.1:0 --json`

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if url := os.Getenv("OPENWOP_BASE_URL"); url != "" {
		hosts = []*host{{name: "given", url: strings.TrimRight(url, "/"), key: os.Getenv("OPENWOP_API_KEY")}}
		return m.Run()
	}
	programs, err := program.New()
	if err != nil {
		return report(err)
	}
	defer func() {
		if err := programs.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	bank, err := fakeescrow.Start(fakeescrow.Config{})
	if err != nil {
		return report(err)
	}
	defer bank.Close()
	recourse := programs.Path("recourse")
	testing, err := programs.Launch("test-mode", recourse, "serve", "--private", "--embedded", "--test-mode", "--listen", "127.0.0.1:0", "--json")
	if err != nil {
		return report(err)
	}
	keyed, err := programs.Launch("keys", programs.Path("sandbox"), "-durable=false", "/bin/sh", "-c", serveWithKeys, recourse, bank.URL())
	if err != nil {
		return report(err)
	}
	if len(keyed.Tokens) != 2 {
		return report(fmt.Errorf("%d keys were made, want 2", len(keyed.Tokens)))
	}
	hosts = []*host{{name: "test-mode", url: testing.URL, clock: true}, {name: "keys", url: keyed.URL, key: keyed.Tokens[0], other: keyed.Tokens[1]}}
	return m.Run()
}

func report(err error) int {
	fmt.Fprintln(os.Stderr, "no host to test:", err)
	return 1
}

// onEach runs a test against each host.
func onEach(t *testing.T, test func(t *testing.T, h *host)) {
	t.Parallel()
	for _, h := range hosts {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			test(t, h)
		})
	}
}

// withFixture runs a test against the hosts that advertise a workflow. A host that is started here in test
// mode must.
func withFixture(t *testing.T, workflow string, test func(t *testing.T, h *host)) {
	onEach(t, func(t *testing.T, h *host) {
		if has := slices.Contains(h.fixturesOf(t), workflow); has {
			test(t, h)
		} else if h.name == "test-mode" {
			t.Errorf("the host does not advertise %s", workflow)
		}
	})
}
