package cli

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Of lines below error that say the same, this many are written within the span, and then
// one in so many: an outage has thousands of them.
const (
	sampledFirst = 10
	sampledThen  = 1000
	sampledSpan  = 10 * time.Second
)

// logLevel reads a level from which on lines are written.
func logLevel(name string) (zapcore.Level, error) {
	level, err := zapcore.ParseLevel(name)
	if err != nil || level > zapcore.ErrorLevel {
		return level, fmt.Errorf("the log level must be debug, info, warn or error, not %q", name)
	}
	return level, nil
}

// newLogger writes JSON lines of a level and above. Errors are all written.
func newLogger(to io.Writer, level zapcore.Level) *zap.Logger {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder, sink := zapcore.NewJSONEncoder(encoding), zapcore.Lock(zapcore.AddSync(to))
	core := func(takes func(zapcore.Level) bool) zapcore.Core {
		return zapcore.NewCore(encoder.Clone(), sink, zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= level && takes(l) }))
	}
	errors := core(func(l zapcore.Level) bool { return l >= zapcore.ErrorLevel })
	others := core(func(l zapcore.Level) bool { return l < zapcore.ErrorLevel })
	return zap.New(zapcore.NewTee(errors, zapcore.NewSamplerWithOptions(others, sampledSpan, sampledFirst, sampledThen)))
}
