package background_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// failingOnce fails the first script of so many keys before it is sent.
type failingOnce struct {
	keys   int
	failed atomic.Bool
}

func (f *failingOnce) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failingOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *failingOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for i, cmd := range cmds {
			if args := cmd.Args(); len(args) > 2 && args[0] == "evalsha" && args[2] == f.keys && f.failed.CompareAndSwap(false, true) {
				cmd.SetErr(errors.New("not sent"))
				if cmds = slices.Delete(slices.Clone(cmds), i, i+1); len(cmds) == 0 {
					return nil
				}
				break
			}
		}
		return next(ctx, cmds)
	}
}
