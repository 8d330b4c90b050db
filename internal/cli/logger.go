package cli

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/internal/door"
)

// Sampling of lines below error: of equal lines within sampleInterval the first sampledFirst are
// written, then one in sampledThen. An outage logs thousands of them.
const (
	sampledFirst   = 10
	sampledThen    = 1000
	sampleInterval = 10 * time.Second
)

// logLevel parses the name of the lowest level that is logged.
func logLevel(name string) (zapcore.Level, error) {
	level, err := zapcore.ParseLevel(name)
	if err != nil || level > zapcore.ErrorLevel {
		return level, fmt.Errorf("the log level must be debug, info, warn or error, not %q", name)
	}
	return level, nil
}

// newLogger returns a logger that writes JSON lines of a level and above. Errors and lines of the
// access logger are never sampled.
func newLogger(to io.Writer, level zapcore.Level) *zap.Logger {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder, sink := zapcore.NewJSONEncoder(encoding), zapcore.Lock(zapcore.AddSync(to))
	core := func(includes func(zapcore.Level) bool) zapcore.Core {
		return zapcore.NewCore(encoder.Clone(), sink, zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= level && includes(l) }))
	}
	errors := core(func(l zapcore.Level) bool { return l >= zapcore.ErrorLevel })
	others := core(func(l zapcore.Level) bool { return l < zapcore.ErrorLevel })
	sampled := zapcore.NewSamplerWithOptions(others, sampleInterval, sampledFirst, sampledThen)
	return zap.New(zapcore.NewTee(errors, accessLogCore{sampled, false}, accessLogCore{others, true}))
}

// accessLogCore is a core that takes only the lines of the access logger, or all others.
type accessLogCore struct {
	zapcore.Core
	accessOnly bool
}

func (c accessLogCore) With(fields []zapcore.Field) zapcore.Core {
	return accessLogCore{c.Core.With(fields), c.accessOnly}
}

func (c accessLogCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if (e.LoggerName == door.AccessLogger) != c.accessOnly {
		return to
	}
	return c.Core.Check(e, to)
}
