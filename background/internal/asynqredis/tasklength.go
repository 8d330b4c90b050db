package asynqredis

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// maxTaskBytes is the longest task that is read. Those of a Manager have at most some KiB: a run id and the error
// of the last delivery.
const maxTaskBytes = 256 << 10

// dequeueScript is asynq's dequeue script. asynqredis runs boundedScript in its place.
//
//	KEYS: pending, paused, active, lease
//	ARGV: when the lease expires; the prefix of the keys of tasks
const dequeueScript = `
if redis.call("EXISTS", KEYS[2]) == 0 then
	local id = redis.call("RPOPLPUSH", KEYS[1], KEYS[3])
	if id then
		local key = ARGV[2] .. id
		redis.call("HSET", key, "state", "active")
		redis.call("HDEL", key, "pending_since")
		redis.call("ZADD", KEYS[4], ARGV[1], id)
		return redis.call("HGET", key, "msg")
	end
end
return nil`

// tooLong begins the answer of boundedScript that removed a task.
const tooLong = "TASKTOOLONG"

// taskRead ends dequeueScript with the task. In boundedScript boundedRead stands for it: it removes a task that is too
// long, and returns an error with its length. It executes no command more.
const (
	taskRead    = `		return redis.call("HGET", key, "msg")`
	boundedRead = `		local task = redis.call("HGET", key, "msg")
		if task and #task > tonumber(ARGV[3]) then
			redis.call("LREM", KEYS[3], 1, id)
			redis.call("ZREM", KEYS[4], id)
			redis.call("DEL", key)
			return redis.error_reply("` + tooLong + ` a task of " .. #task .. " bytes")
		end
		return task`
)

var (
	dequeueHash   = redis.NewScript(dequeueScript).Hash()
	boundedScript = strings.Replace(dequeueScript, taskRead, boundedRead, 1)
	boundedHash   = redis.NewScript(boundedScript).Hash()
)

// Eval runs a script, and boundedScript in the place of asynq's dequeue script.
func (i *PollThrottle) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if script != dequeueScript {
		return i.UniversalClient.Eval(ctx, script, keys, args...)
	}
	return i.withoutLong(ctx, i.UniversalClient.Eval(ctx, boundedScript, keys, append(args, maxTaskBytes)...))
}

// dequeue runs asynq's dequeue script, bounded. A process would hold several times the bytes of a long task that somebody
// has written to Redis.
func (i *PollThrottle) dequeue(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if sha != dequeueHash {
		return i.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	return i.withoutLong(ctx, i.UniversalClient.EvalSha(ctx, boundedHash, keys, append(args, maxTaskBytes)...))
}

// withoutLong turns the answer that a task was removed into that of an empty queue.
func (i *PollThrottle) withoutLong(ctx context.Context, answer *redis.Cmd) *redis.Cmd {
	var refused redis.Error
	if err := answer.Err(); errors.As(err, &refused) && redis.HasErrorPrefix(err, tooLong) {
		i.OnLongTask(err)
		i.wake() // there may be more tasks
		return failedCmd(ctx, redis.Nil)
	}
	return answer
}
