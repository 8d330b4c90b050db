package cli_test

import (
	"encoding/base64"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// The names of a tenant that has long ones.
const (
	longTransaction = "transaction-of-the-year-2026-0000000000000001"
	longPrincipal   = "user:a.person.with.a.long.name@settlement.example"
	longReason      = "the bank has mended its gateway and says that each of these accounts was corrected by hand"
)

// fillTenant makes letters, a plan, a rule, keys, breakers, policies, refusals and a webhook, all with long names.
func fillTenant(t *testing.T, p *clitest.Environment) (run, plan string) {
	t.Helper()
	p.Env[app.WebhookKeyVariable] = base64.StdEncoding.EncodeToString(make([]byte, 32))
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	p.Env[app.EscrowVariable] = v["escrow"].(string)
	refused := strings.Replace(clitest.LineFor(longTransaction), "{", `{"simulate":["refused"],`, 1)
	held := strings.NewReplacer("esc_1", "escrow-account-of-the-marketplace-0000000007", `"minor":12500`, `"minor":1234567890`, `"minor":50000`, `"minor":9234567890`, longTransaction, longTransaction+"-b").Replace(refused)
	p.Run(refused+held+clitest.LineFor("txr_paid"), "submit", "-").Check(t, "submit", 0, "")
	letters := []any{}
	poll.Until(t, "both letters are listed", func() bool {
		letters = p.Run("", "dlq", "list", "--tenant", "acme", "--json").Object(t)["letters"].([]any)
		return len(letters) == 2
	})
	run = letters[0].(map[string]any)["run_id"].(string)
	act := func(code int, args ...string) clitest.Result {
		t.Helper()
		done := p.Run("", append(args, "--tenant", "acme", "--actor", longPrincipal, "--reason", longReason, "--json")...)
		done.Check(t, strings.Join(args, " "), code, "")
		return done
	}
	planned := act(0, "dlq", "bulk", "plan", "fork", "--all").Object(t)
	plan = planned["id"].(string)
	act(0, "dlq", "hold", run)
	p.Run("", "dlq", "bulk", "run", plan, "--hash", planned["hash"].(string), "--yes", "--tenant", "acme", "--actor", longPrincipal).Check(t, "the planner", 5, "has to run the plan")
	rule := filepath.Join(t.TempDir(), "rule.json")
	clitest.WriteFile(t, rule, `{"name":"a-rule-with-a-name-that-is-long","enabled":true,"filter":{"error_type":"http.refused","transaction_receipt_id":"`+longTransaction+`"},"delay":"PT8H","max_replays":2}`)
	act(0, "dlq", "rules", "set", rule)
	act(0, "keys", "create", "--principal", longPrincipal, "--roles", "submitter,operator,approver,auditor")
	act(0, "breaker", "open", "--target", "escrow")
	act(0, "policy", "set", "--max-attempts", "4", "--non-retryable", "http.refused,http.rate_limited")
	act(0, "webhook", "create", "https://hooks.of-the-marketplace.example/recourse/settlement/events")
	stop()
	return run, plan
}

// On a terminal of 80 columns no command draws a line of a table that is longer. A command line to copy stays whole.
func TestTablesFitATerminalOf80Columns(t *testing.T) {
	p := clitest.New(t, testkit.Migrated(t))
	run, plan := fillTenant(t, p)
	t.Setenv("COLUMNS", "80")
	for _, line := range []string{
		"dlq list", "dlq list --filter attempts==1", "dlq stats", "dlq stats --all-tenants", "dlq analyze", "dlq inspect " + run, "dlq rules list", "dlq rules history a-rule-with-a-name-that-is-long", "dlq retention",
		"dlq bulk list", "dlq bulk list --waiting-for-me --actor user:ben", "dlq bulk show " + plan, "dlq bulk items " + plan, "dlq bulk history",
		"cases list", "cases list --reserved", "receipts list --transaction " + longTransaction, "receipts list --actor " + longPrincipal, "receipts verify", "events", "status " + longTransaction,
		"keys list", "keys history", "access history", "breaker list", "breaker history", "policy list", "policy history", "people show", "people history", "webhook list", "webhook history", "doctor",
	} {
		args := strings.Fields(line)
		if line != "doctor" && !slices.Contains(args, "--all-tenants") {
			args = append(args, "--tenant", "acme")
		}
		got := p.Run("", args...)
		if got.Out == "" || got.Code == 2 {
			t.Errorf("%s: %+v", line, got)
		}
		for shown := range strings.SplitSeq(got.Out, "\n") {
			if uniseg.StringWidth(shown) > 80 && !strings.HasPrefix(shown, "  recourse ") {
				t.Errorf("%s draws %d columns: %s", line, uniseg.StringWidth(shown), got.Out)
				break
			}
		}
	}
}
