package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// What only looks, or changes keys and policies, needs no Redis, and what rings demands one before it writes anything.
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
	p.run("", "brake", "pull", "--tenant", "acme", "--actor", "a", "--reason", "r").wants(t, "brake pull", 2, app.RedisVariable)
	p.run("", "dlq", "fork", "--all", "--yes", "--tenant", "acme", "--actor", "a", "--reason", "r").wants(t, "dlq fork", 2, app.RedisVariable)
	p.run("", "doctor").wants(t, "doctor", 2, app.RedisVariable)
	p.env[app.RedisVariable] = "redis://127.0.0.1:1" // named, but away: not asked
	p.run("", "receipts", "verify", "--tenant", "acme").wants(t, "Redis is away", 0, "")
}
