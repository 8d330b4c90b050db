package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/postadjudication"
)

// redisTimeout bounds the checks of Redis: a host that drops packets would block them for minutes.
const redisTimeout = 15 * time.Second

// examineRedis checks the server. The first check is whether it is reachable; if not, it is the
// only one.
func examineRedis(ctx context.Context, opt asynq.RedisConnOpt) (checks []Check) {
	const name = "Redis reachable"
	client, ok := opt.MakeRedisClient().(redis.UniversalClient)
	if !ok {
		return []Check{wrong(name, fmt.Sprintf("%T is not a Redis", opt), "use redis://host:6379/0")}
	}
	defer func() {
		if err := client.Close(); err != nil {
			checks = append(checks, wrong("Redis connection", err.Error(), "check the network"))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return []Check{wrong(name, err.Error(), "check the URL, and that the server runs and accepts connections from this host")}
	}
	return []Check{fine(name, "yes"), checkNotifications(ctx, client), checkEviction(ctx, client), checkPersistence(ctx, client), checkQueues(opt)}
}

// writeAndRemove writes a key, reads it and removes it, as the scripts of tasks do.
var writeAndRemove = redis.NewScript(`redis.call("SET", KEYS[1], ARGV[1], "PX", 60000)
local kept = redis.call("GET", KEYS[1])
redis.call("DEL", KEYS[1])
return kept`)

// checkNotifications writes by a script under both prefixes of keys that processes write: those of tasks, and those of Recourse.
func checkNotifications(ctx context.Context, client redis.UniversalClient) Check {
	const name = "notifications"
	id := uuid.NewString()
	for _, key := range []string{"asynq:{" + postadjudication.Family + ":doctor}:t:" + id, "recourse:doctor:" + id} {
		kept, err := writeAndRemove.Run(ctx, client, []string{key}, id).Text()
		if err == nil && kept != id {
			err = fmt.Errorf("what was written to %s reads %q", key, kept)
		}
		if err != nil {
			return refusedWrite(name, "no notification can be sent", err)
		}
	}
	return fine(name, "a script wrote, read and removed keys under asynq: and recourse:")
}

// setting returns a configuration value; known is false if the server does not reveal it, as hosted
// servers often do.
func setting(ctx context.Context, client redis.UniversalClient, name string) (value string, known bool) {
	all, err := client.ConfigGet(ctx, name).Result()
	if err != nil {
		return "", false
	}
	value, known = all[name]
	return value, known
}

func checkEviction(ctx context.Context, client redis.UniversalClient) Check {
	const name = "maxmemory-policy"
	policy, known := setting(ctx, client, name)
	if !known { // a user without administration may still read it here
		about := client.InfoMap(ctx, "memory").Item("Memory", "maxmemory_policy")
		policy, known = about, about != ""
	}
	switch {
	case !known:
		return hint(name, "the server does not reveal it", "make sure that it is noeviction")
	case policy != "noeviction":
		return wrong(name, policy, "CONFIG SET maxmemory-policy noeviction: Redis must not evict single tasks")
	}
	return fine(name, policy)
}

func checkPersistence(ctx context.Context, client redis.UniversalClient) Check {
	const name = "Redis persistence"
	aof, aofKnown := setting(ctx, client, "appendonly")
	save, saveKnown := setting(ctx, client, "save")
	switch {
	case aof == "yes":
		return fine(name, "append-only file")
	case save != "":
		return fine(name, "snapshots")
	case !aofKnown || !saveKnown:
		return hint(name, "the server does not reveal it", "optional: nothing is lost without it, but with appendonly yes a restart causes fewer redeliveries")
	}
	return hint(name, "none", "optional: nothing is lost without it, but with appendonly yes a restart causes fewer redeliveries")
}

func checkQueues(opt asynq.RedisConnOpt) (c Check) {
	const name = "asynq queues"
	inspector := asynq.NewInspector(opt)
	all, err := inspector.Queues()
	ours := slices.DeleteFunc(all, func(q string) bool { return !strings.HasPrefix(q, postadjudication.Family+":") })
	var paused []string
	for _, q := range ours {
		info, unread := inspector.GetQueueInfo(q)
		if err = errors.Join(err, unread); unread == nil && info.Paused {
			paused = append(paused, q)
		}
	}
	if err = errors.Join(err, inspector.Close()); err != nil {
		return wrong(name, err.Error(), "check the server's log")
	}
	if len(ours) == 0 {
		return hint(name, "no queue of Recourse yet", "recourse serve registers them")
	}
	if slices.Sort(paused); len(paused) > 0 {
		return hint(name, "a person paused "+strings.Join(paused, ", ")+": their runs wait", "unpause each with the tools of asynq (asynq queue unpause, Inspector.UnpauseQueue)")
	}
	slices.Sort(ours)
	return fine(name, strings.Join(ours, ", "))
}
