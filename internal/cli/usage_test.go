package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestBadUsageExitsTwoInOneLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args string
		word string
	}{
		{"frobnicate", "frobnicate"},
		{"serve --embedded --log-level loud", "must be debug, info, warn or error, not \"loud\""},
		{"dlq list --tenant t --class maybe", "--class must be one of executed, not_executed, unknown; see"},
		{"dlq show --tenant t", "no command show"},
		{"dlq list --tenant t --currency eur", "--currency must be three capital letters"},
		{"dlq list --tenant t --reason-code foo", "--reason-code must be one of"},
		{"dlq list --tenant t --since 2026-11-27 --until 2026-11-26", "--until must be later than --since"},
		{"dlq list --tenant t --since yesterday", "--since is not a time such as 2026-11-27T15:04:05Z, nor a date such as 2026-11-27: yesterday"},
		{"dlq list --tenant t --eligible false", "write --eligible=false"},
		{"dlq retry --tenant t --actor a --reason b --eligible false", "write --eligible=false"},
		{"dlq list --tenant t --filter amount>3", "undeclared reference to 'amount' (did you mean amount.minor?)"},
		{"dlq retry --tenant t --actor a --reason b --filter amount>3", "did you mean amount.minor?"},
		{"dlq bulk plan mark --tenant t --actor a --reason b --all", "--set-eligible or --set-review is required"},
		{"dlq bulk plan fork --tenant t --actor a --reason b --all --set-review", "are for the action mark"},
		{"dlq bulk run --tenant t --actor a --hash abc --yes 01a21e28-2be9-75a2-b0f8-79bdda7c851a", "--hash takes the 64 digits that recourse dlq bulk show prints"},
		{"dlq reconcile " + clitest.AnyRun + " --tenant t --actor a --reason b --finding paid --reference r", "--finding must be one of executed, not_executed"},
		{"dlq reconcile " + clitest.AnyRun + " --tenant t --actor a --reason b --reference r", "--finding is missing"},
		{"dlq reconcile " + clitest.AnyRun + " --tenant t --actor a --reason b --finding not_executed", "--reference is missing"},
		{"dlq clear --tenant t --actor a --reason b --family settlement --confirm no", "--confirm must be the name of the family"},
		{"cases list --tenant t --state foo", "--state must be one of pending,"},
		{"serve --embedded --key-lifetime 1x", "a duration such as 24h or 7d"},
		{"demo --serve --listen 0.0.0.0:1", "--listen 0.0.0.0:1 is not on loopback"},
		{"events --tenant t --after foo", "--after takes a whole number in decimal digits such as 12500, without sign, leading zeros and separators, not foo"},
		{"events --tenant t --after 010", "leading zeros and separators, not 010"},
		{"events --tenant t --after 9223372036854775808", "--after takes a whole number of up to 63 bits, not 9223372036854775808"},
		{"dlq list --tenant t --limit 0", "--limit is not between 1 and 1000"},
		{"dlq reconcile " + clitest.AnyRun + " --tenant t --actor a --reason b --moved -5.00EUR", "--moved: -5.00EUR is not written with the 2 decimals of EUR, such as 125.00EUR"},
		{"status", "RUN, CASE, JOB or TRANSACTION is missing"},
		{"status a b --tenant t", "one argument too many: b"},
		{"status txr_1", "--tenant is missing"},
		{"status txr_1 --tenant t --colour", "--colour"},
		{"cancel " + clitest.AnyRun + " --tenant t", "--actor and --reason"},
		{"cancel nonsense --tenant t --actor a --reason b", "not a run id"},
		{"cancel " + clitest.AnyRun + " --actor a --reason b", "--tenant is missing"},
		{"breaker open --actor a --reason b", "--tenant is missing (or give --all-tenants)"},
		{"keys create --tenant t --actor a --reason b --principal user:ada", "--roles is missing"},
		{"receipts frobnicate", "frobnicate"},
		{"receipts list --transaction x", "--tenant is missing"},
		{"receipts list --tenant t", "one of --transaction"},
		{"receipts list --tenant t --case x --run y", "one of --transaction"},
		{"receipts list --tenant t --transaction x --limit 0", "--limit"},
		{"receipts list --tenant t --subtype unknown-one", "no subtype"},
		{"receipts list --tenant t --since yesterday", "--since"},
		{"receipts list --file x --transaction y", "--file excludes"},
		{"receipts list --tenant t --transaction x --after -1", "--after"},
		{"receipts verify", "--all-tenants"},
		{"receipts verify --tenant t --all-tenants", "exclude"},
		{"receipts verify --tenant t --max-recoveries 0", `must be 1 to 1000000, or "unlimited"`},
		{"receipts verify --tenant t --max-recoveries -1", "--max-recoveries takes a whole number in decimal digits"},
		{"receipts verify --tenant t --heads /no/such/file", "/no/such/file"},
		{"submit", "FILE is missing"},
		{"submit /no/such/file", "/no/such/file"},
		{"demo --input /no/such/file", "/no/such/file"},
		{"migrate", app.DatabaseVariable},
		{"migrate --database nonsense", "postgres://"},
		{"doctor", app.DatabaseVariable},
		{"serve", app.DatabaseVariable},
		{"serve --database postgres://h/d --redis redis://h", "--embedded"},
		{"serve --database postgres://h/d --redis redis://h --embedded --listen 0.0.0.0:1", "--expose"},
		{"serve --database postgres://h/d --redis redis://h --embedded --retain settlement=P1X", "P1X"},
		{"dlq retention --tenant t --database postgres://h/d --retain settlement=P1X/10", "P1X"},
		{"submit - --database postgres://h/d", app.RedisVariable},
		{"cancel " + clitest.AnyRun + " --tenant t --actor a --reason r --database postgres://h/d", app.RedisVariable},
		{"status txr_1 --tenant t --database postgres://h/d --redis nonsense", "redis://"},
	} {
		args := strings.Fields(tc.args)
		got := clitest.Execute(t.Context(), nil, strings.NewReader(""), args...)
		got.Check(t, tc.args, 2, tc.word)
		if got.Out != "" {
			t.Errorf("%s: wrote %q", tc.args, got.Out)
		}
		inJSON := clitest.Execute(t.Context(), nil, strings.NewReader(""), append(args, "--json")...)
		failure, ok := inJSON.Object(t)["error"].(map[string]any)
		if !ok || failure["exit_code"] != 2.0 || !strings.Contains(failure["message"].(string), tc.word) {
			t.Errorf("%s --json: %s", tc.args, inJSON.Out)
		}
	}
}

func TestHelpExplainsTheExitCodes(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		got := clitest.Execute(t.Context(), nil, nil, args...)
		if got.Code != 0 || !strings.Contains(got.Out, "4  the schema is missing") || !strings.Contains(got.Out, "demo") {
			t.Errorf("%v: %d %q", args, got.Code, got.Out)
		}
	}
}

func TestServersThatCannotBeReachedExitThree(t *testing.T) {
	t.Parallel()
	const nowhere = "postgres://u@127.0.0.1:1/d?sslmode=disable"
	env := map[string]string{app.DatabaseVariable: nowhere, app.RedisVariable: "redis://127.0.0.1:1"}
	for _, args := range []string{"migrate", "status x --tenant t", "receipts verify --tenant t", "submit -", "serve --embedded --listen 127.0.0.1:0", "demo"} {
		clitest.Execute(t.Context(), env, strings.NewReader(""), strings.Fields(args)...).Check(t, args, 3, "refused")
	}
	env[app.DatabaseVariable] = testkit.Database(t)
	clitest.Execute(t.Context(), env, nil, "demo").Check(t, "demo without Redis", 3, "refused")
	env[app.DatabaseVariable] = strings.Replace(env[app.DatabaseVariable], "/recourse_test", "/no_such", 1)
	clitest.Execute(t.Context(), env, nil, "migrate").Check(t, "no such database", 3, "does not exist")
}

func TestAMissingSchemaExitsFourUntilMigrate(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Database(t))
	for _, args := range []string{"status x --tenant t", "submit -", "receipts verify --all-tenants", "serve --embedded --listen 127.0.0.1:0"} {
		p.Run("", strings.Fields(args)...).Check(t, args, 4, "recourse migrate")
	}
	p.Run("", "migrate", "--app-role", "").Check(t, "no role", 2, "--no-app-role")
	p.Run("", "migrate", "--app-role", "r", "--no-app-role").Check(t, "a role and none", 2, "--no-app-role")
	p.Run("", "migrate", "--app-role", "nobody at all").Check(t, "a role that is not there", 1, `CREATE ROLE "nobody at all" LOGIN PASSWORD`)
	p.Run("", "migrate", "--submit-role", "nobody at all").Check(t, "a submit role that is not there", 1, `CREATE ROLE "nobody at all" LOGIN PASSWORD`)
	first := p.Run("", "migrate", "--json")
	first.Check(t, "migrate", 0, "")
	if v := first.Object(t); v["from"] != 0.0 || v["to"].(float64) < 1 {
		t.Errorf("%v", v)
	}
	again := p.Run("", "migrate")
	if again.Code != 0 || !strings.Contains(again.Out, "already") {
		t.Errorf("%+v", again)
	}
	p.Run("", "receipts", "verify", "--all-tenants").Check(t, "verify of nothing", 0, "")
}

func TestAFileThatIsNoHeadsFileIsBadInput(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "heads")
	clitest.WriteFile(t, name, "not heads\n")
	p := &clitest.Environment{T: t}
	p.Run("", "receipts", "verify", "--tenant", "t", "--heads", name).Check(t, "heads", 2, "line 1")
}

// A server without TLS counts as unreachable, and the error has the fix.
func TestAServerWithoutTLSIsAnErrorWithItsRemedy(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, strings.Replace(testkit.Migrated(t), "sslmode=disable", "sslmode=require", 1))
	p.Run("", "receipts", "verify", "--all-tenants").Check(t, "verify", 3, "sslmode=disable")
	if got := p.Run("", "doctor"); got.Code != 1 || !strings.Contains(got.Out, "sslmode=disable") {
		t.Errorf("%+v", got)
	}
}
