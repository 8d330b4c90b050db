package app_test

import "github.com/hibiken/asynq"

// addr returns the address of a Redis. Every Redis of these tests is a single server.
func addr(opt asynq.RedisConnOpt) string { return opt.(asynq.RedisClientOpt).Addr }

// password returns the password of a Redis.
func password(opt asynq.RedisConnOpt) string { return opt.(asynq.RedisClientOpt).Password }
