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
