package workers

import (
	"context"
	"errors"
	"maps"
	"slices"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gpumux/gpumux"
)

// Zap makes Options.Log of a zap logger. The worker writes to that logger itself, so its
// level, its options and the types of fields stay. Zap of nil is nil.
func Zap(to *zap.Logger) log.Logger {
	if to == nil {
		return nil
	}
	return zapLog{to.WithOptions(zap.AddCallerSkip(1)).Sugar()}
}

// zapOf is the zap logger that writes to a logger of the SDK's type.
func zapOf(to log.Logger) *zap.Logger {
	switch to := to.(type) {
	case nil:
		return zap.NewNop()
	case zapLog:
		return to.Desugar().WithOptions(zap.AddCallerSkip(-1))
	}
	return zap.New(forwardingCore{to})
}

type zapLog struct{ *zap.SugaredLogger }

func (l zapLog) Debug(msg string, keyvals ...any) { l.Debugw(msg, keyvals...) }
func (l zapLog) Info(msg string, keyvals ...any)  { l.Infow(msg, keyvals...) }
func (l zapLog) Warn(msg string, keyvals ...any)  { l.Warnw(msg, keyvals...) }

// Error logs what was cancelled as information: that is no failure.
func (l zapLog) Error(msg string, keyvals ...any) {
	write := l.Errorw
	for _, each := range keyvals {
		if err, _ := each.(error); temporal.IsCanceledError(err) || errors.Is(err, context.Canceled) {
			write = l.Infow
		}
	}
	write(msg, keyvals...)
}

// With adds fields to every later line.
func (l zapLog) With(keyvals ...any) log.Logger { return zapLog{l.SugaredLogger.With(keyvals...)} }

// quiet drops the lines of the SDK that are no warnings.
func quiet(to *zap.Logger) log.Logger {
	if to.Core().Enabled(zap.InfoLevel) { // zap complains of a level below the logger's own
		to = to.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	}
	return Zap(to)
}

// forwardingCore hands entries to a logger, whose own level decides.
type forwardingCore struct{ to log.Logger }

func (forwardingCore) Enabled(zapcore.Level) bool { return true }
func (forwardingCore) Sync() error                { return nil }

// With is zapcore.Core's.
func (c forwardingCore) With(fields []zap.Field) zapcore.Core {
	return forwardingCore{log.With(c.to, keyvals(fields)...)}
}

// Check is zapcore.Core's.
func (c forwardingCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return to.AddCore(e, c)
}

// Write is zapcore.Core's.
func (c forwardingCore) Write(e zapcore.Entry, fields []zap.Field) error {
	write := c.to.Error
	switch e.Level {
	case zap.DebugLevel:
		write = c.to.Debug
	case zap.InfoLevel:
		write = c.to.Info
	case zap.WarnLevel:
		write = c.to.Warn
	}
	if e.LoggerName != "" {
		fields = append(slices.Clip(fields), zap.String("logger", e.LoggerName))
	}
	write(e.Message, keyvals(fields)...)
	return nil
}

// keyvals are the keys and values of fields, in their order.
func keyvals(fields []zap.Field) (all []any) {
	for _, f := range fields {
		values := zapcore.NewMapObjectEncoder()
		f.AddTo(values)
		for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
			all = append(all, key, values.Fields[key])
		}
	}
	return all
}

// withheld replaces in the log what a task said.
const withheld = "(not in the log, since payloads are encrypted; see the map's results)"

// redact is a log without the texts of faults, which may hold parts of items: the log is
// not encrypted, even if payloads are. Kinds, places and numbers stay.
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
		case f.Key == "fault", f.Key == "item":
			kept[i] = zap.String(f.Key, withheld)
		case errors.As(err, &fault):
			kept[i] = zap.String(f.Key, string(fault.Kind)+" "+withheld)
		case errors.As(err, &application):
			kept[i] = zap.String(f.Key, application.Type()+" "+withheld)
		}
	}
	return kept
}
