package doctor_test

import (
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/cli/doctor"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// A Redis that answers and takes no writes is wrong, with what to do about it: a replica, one without memory, and one whose user
// may not write under a prefix, or run scripts.
func TestARedisThatTakesNoWritesIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commands [][]any
		user     string
		says     string
		remedy   string // empty: it is fine
	}{
		"as it is":                {nil, "", "under asynq: and recourse:", ""},
		"a replica":               {[][]any{{"REPLICAOF", "127.0.0.1", "1"}}, "", "no notification can be sent: Redis is a replica", "name the primary"},
		"without memory":          {[][]any{{"CONFIG", "SET", "maxmemory", "1"}}, "", "no notification can be sent: Redis has no memory left", "raise maxmemory"},
		"tasks only":              {[][]any{{"ACL", "SETUSER", "app", "on", ">secret", "~asynq:*", "+@all"}}, "app", "no notification can be sent: the user of Redis may not", "~recourse:*"},
		"without scripts":         {[][]any{{"ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-@scripting"}}, "app", "no notification can be sent: the user of Redis may not", "run scripts"},
		"the user of the remedy":  {[][]any{{"ACL", "SETUSER", "app", "on", ">secret", "~asynq:*", "~recourse:*", "&asynq:*", "&recourse:*", "+@all", "-@admin"}}, "app", "a script wrote", ""},
		"that evicts, and is ACL": {[][]any{{"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"}, {"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-@admin"}}, "app", "a script wrote", ""},
	} {
		server, opt := testkit.Redis(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: server.Password()})
		for _, command := range c.commands {
			if err := client.Do(t.Context(), command...).Err(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if c.user != "" {
			opt = asynq.RedisClientOpt{Addr: server.Addr(), Username: c.user, Password: "secret"}
		}
		checks := doctor.Examine(t.Context(), "", opt)
		got := find(t, checks, "notifications")
		if (got.Verdict == doctor.Wrong) != (c.remedy != "") || !strings.Contains(got.Result, c.says) || !strings.Contains(got.Remedy, c.remedy) {
			t.Errorf("%s: %+v", name, got)
		}
		if policy := find(t, checks, "maxmemory-policy"); strings.Contains(name, "evicts") != (policy.Verdict == doctor.Wrong) || policy.Verdict == doctor.Hint {
			t.Errorf("%s: %+v", name, policy)
		}
		if keys, err := client.Keys(t.Context(), "*doctor*").Result(); err != nil || len(keys) > 0 {
			t.Errorf("%s: %v are left, %v", name, keys, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}
