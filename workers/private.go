package workers

import (
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/logkey"
)

// withheld replaces in the log what a task said.
const withheld = "(not in the log, since payloads are encrypted; see the map's results)"

// redact is a log without the texts of faults, which may hold parts of items: the log is not encrypted, even if payloads are. Kinds,
// places and numbers stay.
func redact(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		if _, already := c.(redactedCore); already {
			return c
		}
		return redactedCore{c}
	}))
}

type redactedCore struct{ zapcore.Core }

// With is zapcore.Core's.
func (p redactedCore) With(fields []zap.Field) zapcore.Core {
	return redactedCore{p.Core.With(redacted(fields))}
}

// Check is zapcore.Core's.
func (p redactedCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if p.Enabled(e.Level) {
		return to.AddCore(e, p)
	}
	return to
}

// Write is zapcore.Core's.
func (p redactedCore) Write(e zapcore.Entry, fields []zap.Field) error {
	return p.Core.Write(e, redacted(fields))
}

// redacted removes the texts of faults from fields.
func redacted(fields []zap.Field) []zap.Field {
	kept := make([]zap.Field, len(fields))
	for i, f := range fields {
		kept[i] = f
		err, _ := f.Interface.(error)
		var fault *gpumux.Fault
		var application *temporal.ApplicationError
		switch {
		case f.Key == logkey.Fault, f.Key == logkey.Item:
			kept[i] = zap.String(f.Key, withheld)
		case errors.As(err, &fault):
			kept[i] = zap.String(f.Key, string(fault.Kind)+" "+withheld)
		case errors.As(err, &application):
			kept[i] = zap.String(f.Key, application.Type()+" "+withheld)
		}
	}
	return kept
}
