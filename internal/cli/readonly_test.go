package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// Commands that read, open circuit breakers, or change keys, policies and annotations need no Redis.
// Commands that send notifications require one before they write anything.
func TestReadOnlyCommandsNeedNoRedis(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	delete(p.Env, app.RedisVariable)
	for _, args := range []string{
		"receipts verify --tenant acme", "receipts verify --all-tenants", "receipts list --tenant acme --transaction txr_1",
		"status txr_1 --tenant acme", "breaker list --tenant acme", "events --tenant acme", "keys list --tenant acme", "policy list --tenant acme",
		"dlq list --tenant acme", "dlq stats --tenant acme", "dlq analyze --tenant acme", "dlq bulk list --tenant acme", "dlq rules list --tenant acme", "dlq retention --tenant acme",
	} {
		p.Run("", strings.Fields(args)...).Check(t, args, 0, "")
	}
	p.Run("", "keys", "create", "--tenant", "acme", "--principal", "user:ada", "--roles", "auditor", "--actor", "root", "--reason", "r").Check(t, "keys create", 0, "")
	p.Run("", "policy", "set", "--tenant", "acme", "--max-attempts", "4", "--actor", "root", "--reason", "r").Check(t, "policy set", 0, "")
	p.Run(clitest.LineFor("txr_2"), "submit", "-").Check(t, "submit", 2, app.RedisVariable)
	p.Run("", "status", "txr_2", "--tenant", "acme").Check(t, "what was not submitted", 1, "txr_2")
	for _, verb := range []string{"open", "release"} {
		p.Run("", "breaker", verb, "--tenant", "acme", "--actor", "a", "--reason", "r").Check(t, "breaker "+verb, 0, "")
	}
	for _, act := range []string{"hold", "release", "mark --eligible"} {
		args := append([]string{"dlq"}, strings.Fields(act)...)
		p.Run("", append(args, "--tenant", "acme", "--actor", "a", "--reason", "r", p.RunOf("txr_1"))...).Check(t, act, 1, "not_a_letter")
	}
	p.Run("", "dlq", "fork", "--all", "--yes", "--tenant", "acme", "--actor", "a", "--reason", "r").Check(t, "dlq fork", 2, app.RedisVariable)
	if got := p.Run("", "doctor"); got.Code == 2 || !strings.Contains(got.Out, "not named, and not checked") {
		t.Errorf("doctor without a Redis: %+v", got)
	}
	p.Env[app.RedisVariable] = "redis://127.0.0.1:1" // named but down: it must not be used
	p.Run("", "receipts", "verify", "--tenant", "acme").Check(t, "Redis is away", 0, "")
}

// A database where what protects evidence is off or changed can be read, with a warning. Every command that changes something
// returns an error, also one that needs no Redis.
func TestReadOnlyCommandsWorkWhereTriggersAreOff(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Run(clitest.Line, "submit", "-").Check(t, "submit", 0, "")
	run := p.RunOf("txr_1")
	whole := p.Run("", "receipts", "verify", "--tenant", "acme", "--json")
	if v := whole.Object(t); v["guards_off"] != nil || strings.Contains(p.Run("", "receipts", "verify", "--tenant", "acme").Out, "Warning:") {
		t.Errorf("guards in force are reported as off: %s", whole.Out)
	}
	p.Exec(`CREATE OR REPLACE FUNCTION recourse.refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`, `ALTER TABLE recourse.runs ENABLE TRIGGER never_changed`)
	for _, args := range []string{
		"receipts list --tenant acme --transaction txr_1", "status txr_1 --tenant acme", "status " + run + " --tenant acme", "breaker list --tenant acme", "breaker history --tenant acme", "events --tenant acme", "cases list --tenant acme",
		"keys list --tenant acme", "keys history --tenant acme", "policy list --tenant acme", "policy history --tenant acme", "people show --tenant acme", "people history --tenant acme", "access history --tenant acme",
		"dlq list --tenant acme", "dlq stats --tenant acme", "dlq analyze --tenant acme", "dlq export - --tenant acme", "dlq bulk list --tenant acme", "dlq bulk history --tenant acme", "dlq rules list --tenant acme",
	} {
		got := p.Run("", strings.Fields(args)...)
		got.Check(t, args, 0, "")
		if strings.Count(got.Err, "\n") != 1 || !strings.HasPrefix(got.Err, "warning: 2 guards") || !strings.Contains(got.Err, "(function refuse_rewrite(), runs.never_changed)") || !strings.Contains(got.Err, "receipts verify") {
			t.Errorf("%s warns with %q", args, got.Err)
		}
	}
	p.Run("", "dlq", "inspect", run, "--tenant", "acme").Check(t, "inspect what is no letter", 1, "no dead letter of")
	for _, args := range []string{
		"cancel " + run + " --tenant acme --actor a --reason r", "dlq rebuild --tenant acme --actor a --reason r", "keys create --tenant acme --principal user:ada --roles auditor --actor root --reason r",
		"policy set --tenant acme --max-attempts 4 --actor root --reason r", "breaker open --tenant acme --actor a --reason r", "dlq fork --all --yes --tenant acme --actor a --reason r", "people set 1 --tenant acme --actor root --reason r",
	} {
		p.Run("", strings.Fields(args)...).Check(t, args, 4, "not in force")
	}
	p.Run(clitest.LineFor("txr_2"), "submit", "-").Check(t, "submit", 4, "not in force")
	sick := p.Run("", "doctor")
	sick.Check(t, "doctor", 1, "a check failed")
	if strings.Count(sick.Out, "refuse_rewrite") != 1 || !strings.Contains(strings.Join(strings.Fields(sick.Out), " "), "run recourse receipts verify, find the cause, then run recourse migrate") {
		t.Errorf("%s", sick.Out)
	}
	v := p.Run("", "receipts", "verify", "--tenant", "acme", "--json")
	v.Check(t, "verify", 0, "")
	if off := v.Object(t)["guards_off"]; len(off.([]any)) != 2 || v.Object(t)["ok"] != true {
		t.Errorf("%s", v.Out)
	}
	if people := p.Run("", "receipts", "verify", "--tenant", "acme"); people.Code != 0 || !strings.Contains(people.Out, "2 guards") || people.Err != "" {
		t.Errorf("%+v", people)
	}
	if mended := p.Run("", "migrate"); mended.Code != 0 || !strings.Contains(strings.Join(strings.Fields(mended.Out), " "), "off or changed: function refuse_rewrite(), runs.never_changed. It is in force again. Evidence may have been changed") {
		t.Errorf("%+v", mended)
	}
	if again := p.Run("", "migrate"); again.Code != 0 || strings.Contains(again.Out, "in force again") {
		t.Errorf("%+v", again)
	}
}
