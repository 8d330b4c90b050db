package app

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// redisLog is where what go-redis says goes: it has one logger for all clients of a
// program. Without one it says nothing; what fails is returned as well.
var redisLog atomic.Pointer[zap.Logger]

type redisLogger struct{}

// Printf implements go-redis's interface of a logger.
func (redisLogger) Printf(_ context.Context, format string, values ...any) {
	if log := redisLog.Load(); log != nil {
		log.Warn("redis client", zap.String("said", strings.TrimSpace(fmt.Sprintf(format, values...))))
	}
}

func init() { redis.SetLogger(redisLogger{}) }
