package dlq_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// A letter is held, marked, released and purged into an archive, and another one cleared; nothing
// is removed before it is confirmed.
func TestLettersAreHeldMarkedAndPurged(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.OnePerson()
	_, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	refused := strings.Replace(clitest.Line, "{", `{"simulate":["refused"],`, 1)
	p.Run(refused, "submit", "-").Check(t, "submit", 0, "")
	p.Run(strings.NewReplacer("txr_1", "txr_2", "sub_1", "sub_2", "adj_1", "adj_2", "esc_1", "esc_2").Replace(refused), "submit", "-").Check(t, "submit", 0, "")
	letters := func(more ...string) []any {
		t.Helper()
		got := p.Run("", append([]string{"dlq", "list", "--tenant", "acme", "--json"}, more...)...)
		got.Check(t, "list", 0, "")
		return got.Object(t)["letters"].([]any)
	}
	for len(letters()) < 2 { // bounded by the time limit of go test
		continue
	}
	run := letters("--transaction", "txr_1")[0].(map[string]any)["run_id"].(string)
	order := func(verb string, more ...string) clitest.Result {
		return p.Run("", append([]string{"dlq", verb, "--tenant", "acme", "--actor", "user:ada", "--reason", "mended"}, more...)...)
	}
	order("hold", run).Check(t, "hold", 0, "")
	order("hold", run).Check(t, "hold again", 1, "held")
	if marked := order("mark", run, "--eligible", "--json"); marked.Object(t)["reprocess_eligible"] != true || marked.Object(t)["held"] != true {
		t.Errorf("%s", marked.Out)
	}
	if n := len(letters("--held", "--eligible")); n != 1 {
		t.Errorf("%d letters are listed as held and marked", n)
	}
	order("mark", run).Check(t, "no mark", 2, "--eligible")
	order("mark", run, "--review=maybe").Check(t, "no mark", 2, "--review")
	archive := filepath.Join(t.TempDir(), "archive")
	order("purge", "--archive", archive, "--yes").Check(t, "no filter", 2, "filter")
	order("purge", "--archive", archive, "--transaction", "txr_1").Check(t, "nobody to ask", 2, "--yes")
	order("purge", "--archive", archive, "--transaction", "txr_1", "--yes", "--dry-run").Check(t, "both", 2, "--dry-run")
	order("purge", "--archive", archive, "--yes", "--reason-code", "bored").Check(t, "a bad filter", 2, "--reason-code")
	plan := order("purge", "--archive", archive, "--transaction", "txr_1", "--dry-run", "--json")
	if plan.Check(t, "plan", 0, ""); plan.Object(t)["ready"] != 0.0 || plan.Object(t)["refused"].(map[string]any)["held"] != 1.0 {
		t.Errorf("%s", plan.Out)
	}
	order("release", run).Check(t, "release", 0, "")
	if shown := order("purge", "--archive", archive, "--transaction", "txr_1", "--dry-run"); !strings.Contains(shown.Out, "1 letter would be removed") || !strings.Contains(shown.Out, "USD") || !strings.Contains(shown.Out, "--here --archive "+archive) {
		t.Errorf("%s", shown.Out)
	}
	order("purge", "--archive", archive, "--transaction", "txr_1", "--confirm", "2").Check(t, "another number", 2, "confirm")
	if plans := p.Run("", "dlq", "bulk", "list", "--tenant", "acme").Out; !strings.Contains(plans, "cancelled") {
		t.Errorf("what was not confirmed can be run: %s", plans)
	}
	order("purge", "--archive", archive, "--transaction", "txr_1", "--confirm", "1").Check(t, "purge", 0, "")
	if n := len(letters("--transaction", "txr_1")); n != 0 {
		t.Errorf("%d letters are left of txr_1", n)
	}
	if files, err := filepath.Glob(filepath.Join(archive, "acme", "settlement", "*", "*", "*", "*.jsonl.gz")); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	order("hold", run).Check(t, "hold of what is gone", 1, "no")
	order("clear", "--archive", archive, "--yes").Check(t, "of no family", 2, "--family")
	order("clear", "--family", "settlement", "--archive", archive, "--confirm", "yes").Check(t, "another word", 2, "confirm")
	p.Run("", "dlq", "clear", "--family", "settlement", "--tenant", "acme", "--confirm", "settlement").Check(t, "no reason", 2, "--reason")
	p.Run("", "dlq", "clear", "--family", "settlement", "--tenant", "acme", "--confirm", "settlement", "--reason", "x").Check(t, "nobody", 2, "--actor")
	order("clear", "--family", "settlement", "--archive", archive, "--yes").Check(t, "clear", 0, "")
	if n := len(letters("--status", "")); n != 0 {
		t.Errorf("%d letters are left", n)
	}
	p.Run("", "receipts", "verify", "--tenant", "acme").Check(t, "verify", 0, "")
}
