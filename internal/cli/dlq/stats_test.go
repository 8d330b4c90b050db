package dlq_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/backend"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// A platform key shows at a server the same sums of all tenants that the database shows. No other key does.
func TestThePlatformSeesTheMoneyOfAllTenantsAtAServer(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--require-keys", "--json")
	defer stop()
	p.Env[app.EscrowVariable] = v["escrow"].(string) // the escrow service of the server
	refused := strings.Replace(clitest.LineFor("txr_1"), "{", `{"simulate":["refused"],`, 1)
	inEuro := strings.NewReplacer(`"acme"`, `"other"`, `"txr_1"`, `"txr_2"`, `"USD"`, `"EUR"`, `"esc_1"`, `"esc_2"`).Replace(refused)
	p.Run(refused+strings.ReplaceAll(refused, `"acme"`, `"other"`)+inEuro, "submit", "-").Check(t, "submit", 0, "")
	byTenant := []string{"dlq", "stats", "--all-tenants"}
	poll.Until(t, "three letters are listed", func() bool {
		return strings.Contains(strings.Join(strings.Fields(p.Run("", byTenant...).Out), " "), "all 3 125.00 EUR, 250.00 USD 125.00 EUR, 250.00 USD")
	})
	at := func(keyFlags ...string) func(args ...string) clitest.Result {
		made := p.Run("", append([]string{"keys", "create", "--actor", "root", "--reason", "r", "--json"}, keyFlags...)...)
		made.Check(t, "key", 0, "")
		env := map[string]string{backend.KeyVariable: made.Object(t)["token"].(string), "RECOURSE_SERVER": v["url"].(string)}
		return func(args ...string) clitest.Result {
			return clitest.Execute(t.Context(), env, strings.NewReader(""), args...)
		}
	}
	asked := append(byTenant, "--json")
	here := sums(t, p.Run("", asked...))
	for name, platform := range map[string]func(...string) clitest.Result{
		"of no tenant": at("--principal", "service:grafana", "--platform"), "of a tenant": at("--principal", "user:kim", "--tenant", "acme", "--roles", "operator", "--platform"),
	} {
		there := platform(asked...)
		there.Check(t, name, 0, "")
		if got := sums(t, there); got != here {
			t.Errorf("%s: the server returned\n%s\nthe database\n%s", name, got, here)
		}
		if table := platform(byTenant...); table.Out != p.Run("", byTenant...).Out {
			t.Errorf("%s: %s", name, table.Out)
		}
		if filtered := platform(append(byTenant, "--class", "unknown")...); !strings.Contains(strings.Join(strings.Fields(filtered.Out), " "), "all 0 nothing") {
			t.Errorf("%s: %+v", name, filtered)
		}
		platform(append(byTenant, "--tenant", "acme")...).Check(t, "all and one", 2, "exclude each other")
	}
	at("--principal", "user:ada", "--tenant", "acme", "--roles", "operator")(byTenant...).Check(t, "the key of a tenant", 1, "it needs the role platform")
}

// sums returns the statistics in an answer without their time.
func sums(t *testing.T, of clitest.Result) string {
	t.Helper()
	answer := of.Object(t)
	for _, tenant := range answer["tenants"].([]any) {
		delete(tenant.(map[string]any), "at")
	}
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
