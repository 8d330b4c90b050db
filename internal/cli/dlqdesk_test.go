package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// A letter is held, marked, let go and purged into an archive, and another cleared;
// nothing goes before it was confirmed.
func TestLettersAreHeldMarkedAndPurged(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.onePerson()
	_, stop := p.served("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	refused := strings.Replace(line, "{", `{"simulate":["refused"],`, 1)
	p.run(refused, "submit", "-").wants(t, "submit", 0, "")
	p.run(strings.NewReplacer("txr_1", "txr_2", "sub_1", "sub_2", "adj_1", "adj_2", "esc_1", "esc_2").Replace(refused), "submit", "-").wants(t, "submit", 0, "")
	letters := func(more ...string) []any {
		t.Helper()
		got := p.run("", append([]string{"dlq", "list", "--tenant", "acme", "--json"}, more...)...)
		got.wants(t, "list", 0, "")
		return got.object(t)["letters"].([]any)
	}
	for len(letters()) < 2 { // bounded by the time limit of go test
		continue
	}
	run := letters("--transaction", "txr_1")[0].(map[string]any)["run_id"].(string)
	order := func(verb string, more ...string) said {
		return p.run("", append([]string{"dlq", verb, "--tenant", "acme", "--actor", "user:ada", "--reason", "mended"}, more...)...)
	}
	order("hold", run).wants(t, "hold", 0, "")
	order("hold", run).wants(t, "hold again", 1, "held")
	if marked := order("mark", run, "--eligible", "--json"); marked.object(t)["reprocess_eligible"] != true || marked.object(t)["held"] != true {
		t.Errorf("%s", marked.out)
	}
	if n := len(letters("--held", "--eligible")); n != 1 {
		t.Errorf("%d letters are listed as held and marked", n)
	}
	order("mark", run).wants(t, "no mark", 2, "--eligible")
	order("mark", run, "--review=maybe").wants(t, "no mark", 2, "--review")
	archive := filepath.Join(t.TempDir(), "archive")
	order("purge", "--archive", archive, "--yes").wants(t, "no filter", 2, "filter")
	order("purge", "--archive", archive, "--transaction", "txr_1").wants(t, "nobody to ask", 2, "--yes")
	order("purge", "--archive", archive, "--transaction", "txr_1", "--yes", "--dry-run").wants(t, "both", 2, "--dry-run")
	order("purge", "--archive", archive, "--yes", "--reason-code", "bored").wants(t, "a bad filter", 2, "reason_code")
	plan := order("purge", "--archive", archive, "--transaction", "txr_1", "--dry-run", "--json")
	if plan.wants(t, "plan", 0, ""); plan.object(t)["letters"] != 0.0 || plan.object(t)["held"] != 1.0 {
		t.Errorf("%s", plan.out)
	}
	order("release", run).wants(t, "release", 0, "")
	if shown := order("purge", "--archive", archive, "--transaction", "txr_1", "--dry-run"); !strings.Contains(shown.out, "1 letter would be removed") || !strings.Contains(shown.out, "USD") {
		t.Errorf("%s", shown.out)
	}
	order("purge", "--archive", archive, "--transaction", "txr_1", "--confirm", "2").wants(t, "another number", 2, "confirm")
	order("purge", "--archive", archive, "--transaction", "txr_1", "--confirm", "1").wants(t, "purge", 0, "")
	if n := len(letters("--transaction", "txr_1")); n != 0 {
		t.Errorf("%d letters are left of txr_1", n)
	}
	if files, err := filepath.Glob(filepath.Join(archive, "acme", "settlement", "*", "*", "*", "*.jsonl.gz")); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	order("hold", run).wants(t, "hold of what is gone", 1, "no")
	order("clear", "--archive", archive, "--yes").wants(t, "of no family", 2, "--family")
	order("clear", "--family", "settlement", "--archive", archive, "--confirm", "yes").wants(t, "another word", 2, "confirm")
	p.run("", "dlq", "clear", "--family", "settlement", "--tenant", "acme", "--confirm", "settlement").wants(t, "no reason", 2, "--reason")
	p.run("", "dlq", "clear", "--family", "settlement", "--tenant", "acme", "--confirm", "settlement", "--reason", "x").wants(t, "nobody", 2, "--actor")
	order("clear", "--family", "settlement", "--archive", archive, "--yes").wants(t, "clear", 0, "")
	if n := len(letters("--standing", "")); n != 0 {
		t.Errorf("%d letters are left", n)
	}
	p.run("", "receipts", "verify", "--tenant", "acme").wants(t, "verify", 0, "")
}
