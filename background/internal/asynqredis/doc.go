// Package asynqredis is the Redis client that asynq's servers, client and inspector share.
//
//	asynq ──▶ PollThrottle ──▶ Pipelined ──▶ redis.UniversalClient
//	              ▲ Wakeups                        │ LostReplyHook
//
// It promises:
//
//   - Scripts of concurrent callers share round trips, and each caller gets its own answer
//     (Pipelined).
//   - A queue that was found empty is polled again after a pause, or at once when a process
//     announces a task (PollThrottle, Wakeups). A lost announcement only adds latency.
//   - A task that is too long is removed and reported, and its bytes are not read (PollThrottle).
//   - A command whose reply is lost is reported (LostReplyHook), since Redis may have executed it.
//
// It must not know runs, the journal, or what a task means.
package asynqredis
