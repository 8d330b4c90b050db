package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// What only looks, stops calls, or changes keys, policies and what is said of a letter, needs no
// Redis, and what rings demands one before it writes anything.
func TestWhatOnlyLooksNeedsNoRedis(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	delete(p.env, app.RedisVariable)
	for _, args := range []string{
		"receipts verify --tenant acme", "receipts verify --all-tenants", "receipts list --tenant acme --transaction txr_1",
		"status txr_1 --tenant acme", "brake list --tenant acme", "events --tenant acme", "keys list --tenant acme", "policy list --tenant acme",
		"dlq list --tenant acme", "dlq stats --tenant acme", "dlq analyze --tenant acme", "dlq bulk list --tenant acme", "dlq rules list --tenant acme", "dlq retention --tenant acme",
	} {
		p.run("", strings.Fields(args)...).wants(t, args, 0, "")
	}
	p.run("", "keys", "create", "--tenant", "acme", "--principal", "user:ada", "--roles", "auditor", "--actor", "root", "--reason", "r").wants(t, "keys create", 0, "")
	p.run("", "policy", "set", "--tenant", "acme", "--max-attempts", "4", "--actor", "root", "--reason", "r").wants(t, "policy set", 0, "")
	p.run(another("txr_2"), "submit", "-").wants(t, "submit", 2, app.RedisVariable)
	p.run("", "status", "txr_2", "--tenant", "acme").wants(t, "what was not submitted", 1, "txr_2")
	for _, verb := range []string{"pull", "release"} {
		p.run("", "brake", verb, "--tenant", "acme", "--actor", "a", "--reason", "r").wants(t, "brake "+verb, 0, "")
	}
	for _, act := range []string{"hold", "release", "mark --eligible"} {
		args := append([]string{"dlq"}, strings.Fields(act)...)
		p.run("", append(args, "--tenant", "acme", "--actor", "a", "--reason", "r", p.runOf("txr_1"))...).wants(t, act, 1, "not_a_letter")
	}
	p.run("", "dlq", "fork", "--all", "--yes", "--tenant", "acme", "--actor", "a", "--reason", "r").wants(t, "dlq fork", 2, app.RedisVariable)
	if got := p.run("", "doctor"); got.code == 2 || !strings.Contains(got.out, "not named, and not checked") {
		t.Errorf("doctor without a Redis: %+v", got)
	}
	p.env[app.RedisVariable] = "redis://127.0.0.1:1" // named, but away: not asked
	p.run("", "receipts", "verify", "--tenant", "acme").wants(t, "Redis is away", 0, "")
}

// A database whose triggers are off can be read, with a line that says so. What changes
// anything refuses, also what needs no Redis.
func TestWhatOnlyLooksReadsWhereTriggersAreOff(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.run(line, "submit", "-").wants(t, "submit", 0, "")
	run := p.runOf("txr_1")
	whole := p.run("", "receipts", "verify", "--tenant", "acme", "--json")
	if v := whole.object(t); v["triggers_off"] != nil || strings.Contains(p.run("", "receipts", "verify", "--tenant", "acme").out, "not in force") {
		t.Errorf("triggers that are in force are told to be off: %s", whole.out)
	}
	p.exec(`ALTER TABLE recourse.receipts DISABLE TRIGGER append_only`, `ALTER TABLE recourse.runs ENABLE TRIGGER never_changed`)
	for _, args := range []string{
		"receipts list --tenant acme --transaction txr_1", "status txr_1 --tenant acme", "status " + run + " --tenant acme", "brake list --tenant acme", "brake history --tenant acme", "events --tenant acme", "cases list --tenant acme",
		"keys list --tenant acme", "keys history --tenant acme", "policy list --tenant acme", "policy history --tenant acme", "people show --tenant acme", "people history --tenant acme", "access history --tenant acme",
		"dlq list --tenant acme", "dlq stats --tenant acme", "dlq analyze --tenant acme", "dlq export - --tenant acme", "dlq bulk list --tenant acme", "dlq bulk history --tenant acme", "dlq rules list --tenant acme",
	} {
		got := p.run("", strings.Fields(args)...)
		got.wants(t, args, 0, "")
		if strings.Count(got.err, "\n") != 1 || !strings.HasPrefix(got.err, "warning: 2 triggers") || !strings.Contains(got.err, "(receipts.append_only, runs.never_changed)") || !strings.Contains(got.err, "receipts verify") {
			t.Errorf("%s warns with %q", args, got.err)
		}
	}
	p.run("", "dlq", "inspect", run, "--tenant", "acme").wants(t, "inspect what is no letter", 1, "no letter")
	for _, args := range []string{
		"cancel " + run + " --tenant acme --actor a --reason r", "dlq rebuild --tenant acme --actor a --reason r", "keys create --tenant acme --principal user:ada --roles auditor --actor root --reason r",
		"policy set --tenant acme --max-attempts 4 --actor root --reason r", "brake pull --tenant acme --actor a --reason r", "dlq fork --all --yes --tenant acme --actor a --reason r", "people set 1 --tenant acme --actor root --reason r",
	} {
		p.run("", strings.Fields(args)...).wants(t, args, 4, "not in force")
	}
	p.run(another("txr_2"), "submit", "-").wants(t, "submit", 4, "not in force")
	sick := p.run("", "doctor")
	sick.wants(t, "doctor", 1, "wrong")
	if strings.Count(sick.out, "append_only") != 1 || !strings.Contains(strings.Join(strings.Fields(sick.out), " "), "recourse receipts verify, and once that was looked into recourse migrate") {
		t.Errorf("%s", sick.out)
	}
	v := p.run("", "receipts", "verify", "--tenant", "acme", "--json")
	v.wants(t, "verify", 0, "")
	if off := v.object(t)["triggers_off"]; len(off.([]any)) != 2 || v.object(t)["ok"] != true {
		t.Errorf("%s", v.out)
	}
	if people := p.run("", "receipts", "verify", "--tenant", "acme"); people.code != 0 || !strings.Contains(people.out, "2 triggers") || people.err != "" {
		t.Errorf("%+v", people)
	}
	if mended := p.run("", "migrate"); mended.code != 0 || !strings.Contains(strings.Join(strings.Fields(mended.out), " "), "in force again: receipts.append_only, runs.never_changed. Evidence may have been changed") {
		t.Errorf("%+v", mended)
	}
	if again := p.run("", "migrate"); again.code != 0 || strings.Contains(again.out, "in force") {
		t.Errorf("%+v", again)
	}
}
