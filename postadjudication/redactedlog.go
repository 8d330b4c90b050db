package postadjudication

import (
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/internal/redact"
)

// redactedLogger returns a logger that redacts every entry, so that no text of an
// executor, a driver or a panic reaches the log unredacted.
func redactedLogger(l *zap.Logger) *zap.Logger {
	return l.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return redactedCore{c} }))
}

type redactedCore struct{ zapcore.Core }

func (c redactedCore) With(fields []zapcore.Field) zapcore.Core {
	return redactedCore{c.Core.With(redactedFields(fields))}
}

func (c redactedCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if inner := c.Core.Check(e, nil); inner != nil { // it may sample, or be one of several
		return ce.AddCore(e, checkedCore{c.Core, inner})
	}
	return ce
}

// checkedCore writes an entry that the inner core has accepted.
type checkedCore struct {
	zapcore.Core
	entry *zapcore.CheckedEntry
}

func (c checkedCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	e.Message, e.Stack = redact.Text(e.Message), redact.Text(e.Stack)
	c.entry.Entry = e
	c.entry.Write(redactedFields(fields)...)
	return nil
}

func redactedFields(fields []zapcore.Field) []zapcore.Field {
	out := make([]zapcore.Field, len(fields))
	for i, f := range fields {
		switch f.Type {
		case zapcore.StringType:
			f.String = redact.Text(f.String)
		case zapcore.ErrorType, zapcore.ReflectType, zapcore.ByteStringType, zapcore.StringerType:
			if f.Interface != nil {
				f = zap.String(f.Key, redact.Text(textOf(f)))
			}
		}
		out[i] = f
	}
	return out
}

func textOf(f zapcore.Field) string {
	if b, ok := f.Interface.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(f.Interface)
}
