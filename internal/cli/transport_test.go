package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// No command talks to a Postgres that anybody on the way may answer for; doctor says so.
func TestOnlyDoctorTalksToAServerThatDoesNotShowWhoItIs(t *testing.T) {
	t.Parallel()
	env := map[string]string{app.DatabaseVariable: "postgres://u:hush@postgres.invalid/d?sslmode=require", app.RedisVariable: "rediss://redis.invalid"}
	for _, args := range []string{
		"migrate", "submit -", "status txr_1 --tenant t", "receipts verify --tenant t", "dlq list --tenant t", "keys list --tenant t", "demo",
		"serve --escrow https://escrow.invalid --key-lifetime none",
	} {
		got := execute(t.Context(), env, strings.NewReader(""), strings.Fields(args)...)
		if got.wants(t, args, 2, "sslmode=verify-full"); strings.Contains(got.err, "hush") {
			t.Errorf("%s: %s", args, got.err)
		}
	}
	env[app.InsecureVariable] = "postgres,redis"
	execute(t.Context(), env, nil, "migrate").wants(t, "a way that is trusted", 3, "postgres.invalid")
}

func TestDoctorTellsOfTheWaysToTheServers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	p.env[app.EscrowVariable], p.env[app.TargetsVariable] = "http://escrow.invalid/hush", "bank=https://bank.invalid"
	verdicts := func() map[string]string {
		out := map[string]string{}
		got := p.run("", "doctor", "--json")
		for _, c := range got.object(t)["checks"].([]any) {
			c := c.(map[string]any)
			if strings.HasPrefix(c["check"].(string), "TLS of ") {
				out[strings.TrimPrefix(c["check"].(string), "TLS of ")] = c["verdict"].(string)
			}
		}
		if strings.Contains(got.out, "hush") {
			t.Error(got.out)
		}
		return out
	}
	for _, said := range []string{"wrong", "hint"} {
		got := verdicts()
		if len(got) != 4 || got["Postgres"] != "ok" || got["Redis"] != "ok" || got["the escrow service"] != said || got["the escrow service bank"] != "ok" {
			t.Errorf("%v", got)
		}
		p.env[app.InsecureVariable] = app.EscrowServer
	}
	p.env[app.DatabaseVariable] = "postgres://u@127.0.0.1/d?sslmode=hush"
	if got := p.run("", "doctor"); got.code == 0 || strings.Contains(got.out+got.err, "hush") {
		t.Errorf("an sslmode that is none: %+v", got)
	}
}
