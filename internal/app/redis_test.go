package app_test

import "github.com/hibiken/asynq"

// addr is where a Redis listens; every Redis of these tests is a single one.
func addr(opt asynq.RedisConnOpt) string { return opt.(asynq.RedisClientOpt).Addr }

// password is what it asks for.
func password(opt asynq.RedisConnOpt) string { return opt.(asynq.RedisClientOpt).Password }
