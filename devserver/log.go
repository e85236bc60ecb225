package devserver

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.temporal.io/server/common/log"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// repeats: the same line is logged once in so long. A full disk logs many a second.
const repeats = time.Minute

// plainCore drops fields for the server's authors, and lines about requests that callers
// retry or gave up and ports that are taken, which Start replaces or returns. Its level
// can be raised later.
type plainCore struct {
	zapcore.Core
	level zap.AtomicLevel
}

// Enabled includes fatal lines: the server does not end after one that is not logged.
func (c plainCore) Enabled(l zapcore.Level) bool {
	return l == zapcore.FatalLevel || c.level.Enabled(l) && c.Core.Enabled(l)
}

func (c plainCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.level.Enabled(e.Level) && c.Core.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c plainCore) With(fields []zapcore.Field) zapcore.Core {
	return plainCore{c.Core.With(slices.DeleteFunc(slices.Clone(fields), inner)), c.level}
}

// noHTTP begins a warning about the HTTP API, which is off on purpose.
const noHTTP = "HTTP API port has not been set."

func (c plainCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if strings.HasPrefix(e.Message, noHTTP) {
		return nil
	}
	for _, field := range fields {
		err, ok := field.Interface.(error)
		if ok && (isPortTaken(err) || e.Level < zapcore.FatalLevel && passes(err)) {
			return nil
		}
	}
	return c.Core.Write(e, slices.DeleteFunc(slices.Clone(fields), inner))
}

// passes reports whether a request failed that is made again, or that its caller gave up.
func passes(err error) bool {
	return strings.Contains(err.Error(), "please retry") || err.Error() == "shard status unknown" ||
		strings.Contains(err.Error(), context.Canceled.Error())
}

func inner(f zapcore.Field) bool { return f.Key == "logging-call-at" || f.Key == "shard-id" }

const logNothing = zapcore.FatalLevel + 1

// quietLog logs the server's warnings and errors until it is silenced.
type quietLog struct {
	zap   *zap.Logger
	level zap.AtomicLevel
}

func newQuietLog(l *zap.Logger) *quietLog {
	l = cmp.Or(l, zap.NewNop())
	level := zap.NewAtomicLevelAt(zapcore.WarnLevel)
	return &quietLog{level: level, zap: l.Named("temporal").WithOptions(
		zap.WrapCore(func(c zapcore.Core) zapcore.Core {
			return zapcore.NewSamplerWithOptions(plainCore{c, level}, repeats, 1, 0)
		}),
		zap.WithFatalHook(raiseFatal{level: level}),
	)}
}

func (q *quietLog) temporal() log.Logger { return log.NewZapLogger(q.zap) }

func (q *quietLog) silence() { q.level.SetLevel(logNothing) }

// raiseFatal turns the server's fatal log lines into panics with a fatalError. While the
// server stops it ends only the goroutine: a listener may close before it has served.
type raiseFatal struct{ level zap.AtomicLevel }

func (r raiseFatal) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	if r.level.Level() == logNothing {
		runtime.Goexit()
	}
	err := fmt.Errorf("the server gave up: %s", strings.ToLower(e.Message))
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok {
			err = fmt.Errorf("%w: %w", err, cause)
			break
		}
	}
	panic(fatalError{err})
}

// fatalError is an error that ended the server.
type fatalError struct{ error }
