package dlq_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestRetentionIsReportedByTheServerThatAppliesIt(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--archive", t.TempDir(), "--retain", "settlement=P90D", "--retain", "settlement:1=P30D/500", "--no-openwop", "--json")
	defer stop()
	server := []string{"--server", v["url"].(string), "--tenant", "acme"}
	ask := func(where []string, args ...string) clitest.Result {
		return p.Run("", append(append([]string{"dlq", "retention"}, args...), where...)...)
	}
	reported := ask(server, "--json").Object(t)["retention"].([]any)
	if len(reported) != 3 || reported[1].(map[string]any)["max_age"] != "90d" || reported[2].(map[string]any)["max_count"] != 500.0 {
		t.Errorf("%v", reported)
	}
	for _, word := range []string{"90d", "unlimited", "settlement:1", "500 of each tenant", "archived"} {
		if shown := ask(server); shown.Code != 0 || !strings.Contains(shown.Out, word) {
			t.Errorf("%q is not in %+v", word, shown)
		}
	}
	here := ask([]string{"--tenant", "acme"})
	if here.Check(t, "defaults", 0, ""); !strings.Contains(here.Out, "180d") || !strings.Contains(here.Out, "no archive is configured") || !strings.Contains(here.Out, "Use --server") {
		t.Errorf("%s", here.Out)
	}
	if tried := ask([]string{"--tenant", "acme"}, "--retain", "settlement=P1D", "--json").Object(t)["retention"].([]any); tried[0].(map[string]any)["max_age"] != "1d" {
		t.Errorf("%v", tried)
	}
	ask([]string{"--tenant", "acme"}, "--retain", "settlement").Check(t, "no age", 2, "settlement=P180D")
	for rule, word := range map[string]string{"settlement=P1X": "ISO 8601", "setlement=P1D": "no family", "settlement=P2D": "two rules"} {
		ask([]string{"--tenant", "acme"}, "--retain", "settlement=P1D", "--retain", rule).Check(t, rule, 2, word)
	}
	ask(server, "--retain", "settlement=P1D").Check(t, "a server's", 2, "--retain cannot be used with --server")
}
