package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// A payment that came back is planned by one person and run by another, and shown by status, lists, receipts and events.
func TestReturnedPlansAndShowsAPaymentThatCameBack(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	shows := func(word string, args ...string) {
		t.Helper()
		args = append(args, "--tenant", "acme")
		poll.Until(t, word, func() bool { return strings.Contains(p.Run("", args...).Out, word) })
	}
	shows("settled", "status", "txr_1")
	by := []string{"--tenant", "acme", "--actor", "user:ada", "--reason", "account closed"}
	returned := func(in string, args ...string) clitest.Result {
		return p.Run(in, append(append([]string{"returned"}, args...), by...)...)
	}
	one := []string{"--transaction", "txr_1", "--reference", "R-1", "--returned-at", "2026-11-20", "--amount"}
	for _, amount := range []string{"000012500", "0x30D4", "1_000", "125.00", "-1", "", "12500USD", "000125.00USD"} {
		returned("", append(one, amount)...).Check(t, "amount "+amount, 2, ", such as 125.00")
	}
	returned("", one[:len(one)-1]...).Check(t, "no amount", 2, "--amount is missing")
	returned("", append(one[:len(one)-1:len(one)-1], "--amount-minor", "12500")...).Check(t, "no currency", 2, "--amount-minor needs --currency")
	returned("", append(one, "125.00USD", "--currency", "USD")...).Check(t, "two currencies", 2, "--amount has its own")
	returned("", append(one, "125.00USD", "--amount-minor", "12500")...).Check(t, "two amounts", 2, "exclude each other")
	returned("", append(one, "125.00EUR")...).Check(t, "another currency", 2, "must be USD, that of the escrow")
	returned("").Check(t, "neither", 2, "either one payment")
	returned("", append([]string{"-", "--transaction"}, "txr_1")...).Check(t, "both", 2, "either one payment")
	returned("{}\n", "-").Check(t, "no payment", 2, "returns[0]")
	returned("{\"transaction_receipt_id\":1}\n", "-").Check(t, "no line", 1, "line 1")
	returned(`{"transaction_receipt_id":"txr_1","reference":"R-1","amount":{"minor":2500,"currency":"USD"},"return_at":"2026-11-20T09:30:00Z"}`+"\n", "-").
		Check(t, "a member that is unknown", 1, `line 1: json: unknown field "return_at"`)
	returned("", "--transaction", "txr_1", "--reference", "R-1", "--returned-at", "2126-11-20", "--amount", "125.00USD").Check(t, "in the future", 2, "must not be in the future")
	returned("\n", "-").Check(t, "no lines", 1, "names no payment")
	returned("", append(one, "125.01USD")...).Check(t, "too much", 1, "1 returned payment can't be recorded")

	file := filepath.Join(t.TempDir(), "returns.jsonl")
	clitest.WriteFile(t, file, "\ufeff"+`{"transaction_receipt_id":"txr_1","reference":"R-1","amount":{"minor":2500,"currency":"USD"},"returned_at":"2026-11-20T09:30:00Z"}`+"\n")
	inPart := returned("nonsense\r\n"+`{"transaction_receipt_id":"txr_1","reference":"R-2","amount":{"minor":100,"currency":"USD"}}`+"\r\n", "-", "--json")
	inPart.Check(t, "a bad line before a good one", 1, "1 returned payment can't be recorded")
	if answer := inPart.Object(t); answer["bad_lines"].([]any)[0].(map[string]any)["line"] != 1.0 || answer["plan"].(map[string]any)["items"] != 1.0 {
		t.Errorf("a bad line before a good one: %v", answer)
	}
	planned := returned("", file, "--json")
	planned.Check(t, "returned", 0, "")
	plan := planned.Object(t)["plan"].(map[string]any)
	if text := returned("", append(one, "100.00 USD")...).Out; !strings.Contains(text, "100.00 USD of transaction txr_1, R-1, on 2026-11-20T00:00:00Z; run ") || !strings.Contains(text, "Another person has to run it") {
		t.Errorf("the plan: %s", text)
	}
	p.Run("", "dlq", "bulk", "run", plan["id"].(string), "--hash", plan["hash"].(string), "--tenant", "acme", "--actor", "user:bob", "--yes").Check(t, "run", 0, "")
	shows("dispute-ready", "status", "txr_1")
	shows("released 125.00 USD, refunded 0.00 USD, of which 25.00 USD came back", "status", "txr_1")
	shows("of which 25.00 USD came back.", "cases", "list")
	shows("25.00 USD of the", "receipts", "list", "--transaction", "txr_1")
	shows("returned 2500 in minor units", "events")
	if text := returned("", file).Out; !strings.Contains(text, "1 returned payment recorded before.") {
		t.Errorf("again: %s", text)
	}
	p.Run("", "receipts", "verify", "--tenant", "acme").Check(t, "verify", 0, "")
}
