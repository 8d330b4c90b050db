package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// No command connects to a Postgres without verified TLS, and doctor reports it.
func TestOnlyDoctorConnectsToAServerThatDoesNotAuthenticate(t *testing.T) {
	t.Parallel()
	env := map[string]string{app.DatabaseVariable: "postgres://u:hush@postgres.invalid/d?sslmode=require", app.RedisVariable: "rediss://redis.invalid"}
	for _, args := range []string{
		"migrate", "submit -", "status txr_1 --tenant t", "receipts verify --tenant t", "dlq list --tenant t", "keys list --tenant t", "demo",
		"serve --escrow https://escrow.invalid --key-lifetime none",
	} {
		got := clitest.Execute(t.Context(), env, strings.NewReader(""), strings.Fields(args)...)
		if got.Check(t, args, 2, "sslmode=verify-full"); strings.Contains(got.Err, "hush") {
			t.Errorf("%s: %s", args, got.Err)
		}
	}
	env[app.InsecureVariable] = "postgres,redis"
	clitest.Execute(t.Context(), env, nil, "migrate").Check(t, "a way that is trusted", 3, "postgres.invalid")
}

func TestDoctorChecksTheTransportToTheServers(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Env[app.EscrowVariable], p.Env[app.TargetsVariable] = "http://escrow.invalid/hush", "bank=https://bank.invalid"
	verdicts := func() map[string]string {
		out := map[string]string{}
		got := p.Run("", "doctor", "--json")
		for _, c := range got.Object(t)["checks"].([]any) {
			c := c.(map[string]any)
			if strings.HasPrefix(c["check"].(string), "TLS of ") {
				out[strings.TrimPrefix(c["check"].(string), "TLS of ")] = c["verdict"].(string)
			}
		}
		if strings.Contains(got.Out, "hush") {
			t.Error(got.Out)
		}
		return out
	}
	for _, said := range []string{"wrong", "hint"} {
		got := verdicts()
		if len(got) != 4 || got["Postgres"] != "ok" || got["Redis"] != "ok" || got["the escrow service"] != said || got["the escrow service bank"] != "ok" {
			t.Errorf("%v", got)
		}
		p.Env[app.InsecureVariable] = app.EscrowServer
	}
	p.Env[app.DatabaseVariable] = "postgres://u@127.0.0.1/d?sslmode=hush"
	if got := p.Run("", "doctor"); got.Code == 0 || strings.Contains(got.Out+got.Err, "hush") {
		t.Errorf("an sslmode that is none: %+v", got)
	}
}
