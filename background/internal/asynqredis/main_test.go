package asynqredis

import (
	"testing"

	"go.uber.org/goleak"
)

// The probe of a pool that could not dial ends up to a second after the pool was closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
