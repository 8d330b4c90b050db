package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// Tenant, actor and server come from the environment, unless a flag states them.
func TestFlagsComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Env["RECOURSE_TENANT"], p.Env["RECOURSE_ACTOR"] = "acme", "user:ada"
	p.Run("", "keys", "create", "--principal", "user:eve", "--roles", "operator", "--reason", "r", "--json").Check(t, "a key", 0, `"tenant":"acme"`)
	p.Run("", "keys", "history", "--json").Check(t, "its history", 0, `"actor":"user:ada"`)
	p.Run("", "keys", "history", "--tenant", "other").Check(t, "the flag takes precedence", 0, "other")
	p.Run("", "keys", "create", "--principal", "service:grafana", "--platform", "--reason", "r", "--json").Check(t, "a key for all tenants", 0, `"tenant":"*"`)
	p.Run("", "breaker", "list", "--all-tenants").Check(t, "all tenants", 0, "")
}

func TestTheServerComesFromTheEnvironment(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	p.Env["RECOURSE_TENANT"], p.Env["RECOURSE_ACTOR"] = "acme", "user:ada"
	v, stop := p.Serve("serve", "--embedded", "--listen", "127.0.0.1:0", "--json")
	defer stop()
	p.Env["RECOURSE_SERVER"] = v["url"].(string)
	p.Run("", "dlq", "list").Check(t, "at a server", 0, "no dead letters")
	p.Run("", "dlq", "hold", "019a0000-0000-7000-8000-000000000000", "--reason", "x").Check(t, "at a server", 1, "tenant acme has no letter")
	p.Run("", "dlq", "list", "--server", "http://127.0.0.1:1").Check(t, "the flag takes precedence", 3, "refused")
	p.Run("", "dlq", "hold", "019a0000-0000-7000-8000-000000000000", "--reason", "x", "--actor", "ada").Check(t, "a flag of the database", 2, `--actor cannot be used with --server, which $RECOURSE_SERVER sets; --server "" uses the database`)
	p.Run("", "dlq", "hold", "019a0000-0000-7000-8000-000000000000", "--reason", "x", "--actor", "ada", "--server", "").Check(t, "the database", 1, "tenant acme has no letter")
	p.Env["RECOURSE_SERVER"], p.Env["RECOURSE_ACTOR"] = "", "system:x"
	p.Run("", "dlq", "hold", "019a0000-0000-7000-8000-000000000000", "--reason", "x").Check(t, "a name that nobody may use", 2, "$RECOURSE_ACTOR")
}

func TestTheErrorOfAMistypedNameNamesWhatIsLikeIt(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"dlq lsit":                     "there is no command lsit (did you mean list?)",
		"stauts":                       "there is no command stauts (did you mean status?)",
		"dlq lsit --tenant t":          "there is no command lsit (did you mean list?)",
		"dlq list --tenat t":           "unknown flag: --tenat (did you mean --tenant?)",
		"dlq frobnicate":               "there is no command frobnicate; see",
		"dlq list --frobnicate --json": "unknown flag: --frobnicate; see",
	} {
		clitest.Execute(t.Context(), nil, nil, strings.Fields(args)...).Check(t, args, 2, says)
	}
}
