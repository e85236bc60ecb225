package workers

import (
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/logkey"
)

// withheld stands in the log for what a task said.
const withheld = "(not in the log, since payloads are encrypted; see the map's results)"

// private is a log without the texts of faults, which may hold what items hold: where payloads are encrypted, the log is not. Kinds,
// places and numbers stay.
func private(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		if _, already := c.(privateCore); already {
			return c
		}
		return privateCore{c}
	}))
}

type privateCore struct{ zapcore.Core }

// With is zapcore.Core's.
func (p privateCore) With(fields []zap.Field) zapcore.Core {
	return privateCore{p.Core.With(wordless(fields))}
}

// Check is zapcore.Core's.
func (p privateCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if p.Enabled(e.Level) {
		return to.AddCore(e, p)
	}
	return to
}

// Write is zapcore.Core's.
func (p privateCore) Write(e zapcore.Entry, fields []zap.Field) error {
	return p.Core.Write(e, wordless(fields))
}

// wordless takes the texts of faults out of fields.
func wordless(fields []zap.Field) []zap.Field {
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
