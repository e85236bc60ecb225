package app

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLog is a log for people: short lines with the time of day, warnings and up, or all from info up.
func NewLog(to io.Writer, verbose bool) *zap.Logger {
	level := zapcore.WarnLevel
	if verbose {
		level = zapcore.InfoLevel
	}
	encoding := zap.NewDevelopmentEncoderConfig()
	encoding.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05")
	encoding.CallerKey, encoding.StacktraceKey = "", ""
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoding), zapcore.AddSync(to), level))
}

// Log is the log of server and workers in this process: warnings for people, all with --verbose. Calm keeps warnings about single
// items off the screen, since the results have them.
func (a *App) Log(calm bool) *zap.Logger {
	log := NewLog(a.Console, a.Verbose)
	if calm && !a.Verbose {
		log = log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
	}
	return log
}
