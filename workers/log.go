package workers

import (
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"
)

// temporalLog writes the SDK's log to zap: only warnings and errors, since the rest is about the SDK itself.
type temporalLog struct{ *zap.SugaredLogger }

func newTemporalLog(to *zap.Logger) log.Logger { return ownLog(to.Named("temporal")) }

// ownLog is a log of the worker's own as the SDK's type.
func ownLog(to *zap.Logger) log.Logger {
	return temporalLog{to.WithOptions(zap.AddCallerSkip(1)).Sugar()}
}

func (temporalLog) Debug(string, ...any) {}
func (temporalLog) Info(string, ...any)  {}

func (l temporalLog) Warn(msg string, keyvals ...any)  { l.Warnw(msg, keyvals...) }
func (l temporalLog) Error(msg string, keyvals ...any) { l.Errorw(msg, keyvals...) }

// With adds fields to every later line.
func (l temporalLog) With(keyvals ...any) log.Logger {
	return temporalLog{l.SugaredLogger.With(keyvals...)}
}
