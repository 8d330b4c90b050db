package dlq_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// A dead letter is forked until it settles, and one of unknown outcome is closed by a finding.
func TestDeadLettersAreListedForkedAndReconciled(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	refused := strings.Replace(clitest.Line, `"simulate":"ok"`, `"simulate":["refused","ok"]`, 1)
	if refused == clitest.Line {
		refused = strings.Replace(clitest.Line, "{", `{"simulate":["refused","ok"],`, 1)
	}
	p.Run(refused, "submit", "-").Check(t, "submit", 0, "")
	letters := func(args ...string) []any {
		t.Helper()
		got := p.Run("", append([]string{"dlq", "list", "--tenant", "acme", "--json"}, args...)...)
		got.Check(t, "list", 0, "")
		return got.Object(t)["letters"].([]any)
	}
	var open []any
	for len(open) == 0 { // bounded by the time limit of go test
		open = letters()
	}
	letter := open[0].(map[string]any)
	if letter["reason_code"] != "final" || letter["can_fork"] != true || letter["outcome_class"] != "not_executed" {
		t.Errorf("%v", letter)
	}
	run := letter["run_id"].(string)
	table := p.Run("", "dlq", "list", "--tenant", "acme")
	if table.Check(t, "table", 0, ""); !strings.Contains(table.Out, run) {
		t.Errorf("%s", table.Out)
	}
	if n := len(letters("--class", "unknown")); n != 0 {
		t.Errorf("%d letters of unknown outcome", n)
	}
	errorType, _, _ := strings.Cut(letter["signature"].(string), ":")
	all := []string{"--family", "settlement", "--type", "settlement", "--outcome", "release", "--reason-code", "final", "--class", "not_executed", "--error-type", errorType,
		"--signature", letter["signature"].(string), "--younger-than", "1d", "--min-attempts", "1", "--max-attempts", "1", "--min-amount", "0.01USD", "--max-amount-minor", "9007199254740991", "--currency", "USD", "--transaction", "txr_1",
		"--dispatch", letter["dispatch_reference"].(string), "--max-replays", "0", "--held=false", "--eligible=false", "--review=false", "--expiring-within", "181d", "--sort", "highest_amount"}
	if n := len(letters(all...)); n != 1 {
		t.Errorf("%d letters that meet every filter", n)
	}
	checkSelectedBy(t, p, all[:len(all)-2]...) // a plan has no --sort
	if n := len(letters("--min-replays", "1")); n != 0 {
		t.Errorf("%d letters that were tried again", n)
	}
	for args, word := range map[string]string{
		"list": "--tenant", "list --tenant acme --since yesterday": "--since", "list --tenant acme --class maybe": "--class",
		"list --tenant acme --outcome both": "--outcome", "list --tenant acme --sort prettiest": "--sort", "list --tenant acme --held=perhaps": "--held",
		"list --tenant acme --min-amount lots": "--min-amount: lots is not a sum of money with its currency", "list --tenant acme --min-amount 1.00USD --max-amount 2.00EUR": "2.00 EUR is not in USD", "list --tenant acme --max-amount 1.00USD --max-amount-minor 100": "exclude each other", "list --tenant acme --min-attempts 3 --max-attempts 2": "--max-attempts must not be less than --min-attempts", "list --tenant acme --older-than yore": "older-than",
		"list --tenant acme --queue=": "--queue", "list --tenant acme --expiring-within 0s": "--expiring-within",
		"list --tenant acme --currency euro": "currency", "list --tenant acme --reason-code bored": "--reason-code", "list --tenant acme --after x": "after", "list --tenant acme --dispatch x": "--dispatch",
		"list --tenant acme --limit 0": "limit", "fork x --tenant acme --actor a --reason b": "run id",
		"fork " + run + " --tenant acme": "--reason", "fork " + run + " --tenant acme --reason b": "--actor", "list --tenant acme --reason final": "--reason", "list --tenant acme --older-than-days 0": "--older-than-days",
		"list --tenant acme --older-than-days 3 --older-than 3d": "exclude", "list --tenant acme --eligible true": "too many", "discard " + run: "discard",
		"reconcile " + run + " --tenant acme --actor a --reason b --reference c --finding perhaps":                  "finding",
		"reconcile " + run + " --tenant acme --actor a --reason b --reference c --finding executed":                 "moved",
		"reconcile " + run + " --tenant acme --actor a --reason b --reference c --finding executed --moved-minor 7": "0.07 USD will be recorded as moved, permanently. Standard input is not a terminal: add --yes",
	} {
		p.Run("", append([]string{"dlq"}, strings.Fields(args)...)...).Check(t, args, 2, word)
	}
	fork := p.Run("", "dlq", "fork", run, "--tenant", "acme", "--actor", "user:ada", "--reason", "mended", "--json")
	if fork.Check(t, "fork", 0, ""); fork.Object(t)["parent_run_id"] != run {
		t.Errorf("%s", fork.Out)
	}
	p.Run("", "dlq", "fork", run, "--tenant", "acme", "--actor", "user:bob", "--reason", "me too").Check(t, "second fork", 1, "not_open")
	closed := p.Run("", "dlq", "list", "--tenant", "acme", "--status", "forked")
	if closed.Check(t, "list of closed letters", 0, ""); !strings.Contains(closed.Out, run) || !strings.Contains(closed.Out, " forked") || strings.Contains(closed.Out, "not_open") {
		t.Errorf("the list does not show the status of a closed letter:\n%s", closed.Out)
	}
	p.Run("", "dlq", "reconcile", run, "--tenant", "acme", "--actor", "user:bob", "--reason", "x", "--reference", "y", "--finding", "not_executed").Check(t, "reconcile of a forked letter", 1, "not_open")
	for settled := false; !settled; { // bounded by the time limit of go test
		settled = p.Run("", "status", "txr_1", "--tenant", "acme", "--json").Object(t)["settlement_progression_status"] == "settled"
	}
	p.Run("", "receipts", "verify", "--tenant", "acme").Check(t, "verify", 0, "")
}

// checkSelectedBy checks that what a plan shows says how its letters were selected, in the words of the flags.
func checkSelectedBy(t *testing.T, p *clitest.Environment, flags ...string) {
	t.Helper()
	order := []string{"dlq", "bulk", "plan", "fork", "--limit", "5", "--filter", "attempts == 1", "--to-queue", "settlement:1", "--since", "2020-01-01", "--older-than", "1ns", "--tenant", "acme", "--actor", "user:ada", "--reason", "mended"}
	planned := p.Run("", append(order, flags...)...)
	planned.Check(t, "a plan of selected letters", 0, "")
	words := strings.Fields(planned.Out)
	plan := words[slices.Index(words, "plan")+1]
	shown := p.Run("", "dlq", "bulk", "show", plan, "--tenant", "acme")
	run := append(words[slices.Index(words, "recourse")+1:slices.Index(words, "--actor")], "--actor", "user:ada", "--yes")
	for what, text := range map[string]string{"the plan": planned.Out, "show": shown.Out, "the refusal": p.Run("", run...).Out} {
		text = strings.Join(strings.Fields(text), " ")
		for _, words := range []string{
			"selected by --status open --family settlement --type settlement --outcome release --reason-code final --class not_executed --error-type http.refused --signature ",
			" --since 2020-01-01T00:00:00Z --older-than 1ns --younger-than 1d --min-attempts 1 --max-attempts 1 --min-amount '0.01 USD' --max-amount '90,071,992,547,409.91 USD' --currency USD --transaction txr_1 --dispatch ",
			" --max-replays 0 --held=false --eligible=false --review=false --expiring-within 181d --limit 5 condition attempts == 1 ", " to queue settlement:1 ",
		} {
			if !strings.Contains(text, words) {
				t.Errorf("%s does not show %q: %s", what, words, text)
			}
		}
	}
	for flags, words := range map[string]string{"fork --all": "selected by --all ", "mark --max-amount-minor 20000 --set-review --set-eligible=false": "marks as not worth a retry by itself, needing review by a person selected by --status open --max-amount-minor 20000 "} {
		planned := p.Run("", append([]string{"dlq", "bulk", "plan", "--tenant", "acme", "--actor", "user:ada", "--reason", "mended"}, strings.Fields(flags)...)...)
		if planned.Check(t, flags, 0, ""); !strings.Contains(strings.Join(strings.Fields(planned.Out), " "), words) {
			t.Errorf("%s does not show %q: %s", flags, words, planned.Out)
		}
	}
	if !strings.Contains(shown.Out, "Start it by 20") {
		t.Errorf("the plan does not say until when it is kept: %s", shown.Out)
	}
	if items := p.Run("", "dlq", "bulk", "items", plan, "--tenant", "acme"); !strings.Contains(items.Out, "Transaction") || !strings.Contains(items.Out, "txr_1") || strings.Contains(items.Out, "Case") || !strings.Contains(items.Out, "Escrow") || !strings.Contains(items.Out, "release") || !strings.Contains(items.Out, "http.refused: ") {
		t.Errorf("the items of a plan: %s", items.Out)
	}
}
