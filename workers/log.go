package workers

import (
	"context"
	"errors"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
)

// quiet is a logger for the SDK, which drops the lines that are no warnings.
func quiet(to *zap.Logger) log.Logger {
	if to.Core().Enabled(zap.InfoLevel) { // zap complains of a level below the logger's own
		to = to.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	}
	return zapLog{to.WithOptions(zap.AddCallerSkip(1)).Sugar()}
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

func (l zapLog) With(keyvals ...any) log.Logger { return zapLog{l.SugaredLogger.With(keyvals...)} }
