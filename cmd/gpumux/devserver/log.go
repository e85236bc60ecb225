package devserver

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// repeats: the same line is logged once in so long. A full disk logs many a second.
const repeats = time.Minute

// quietLog is the server's logger. It logs warnings and errors until it is silent. It
// leaves out fields for the server's authors, and lines about requests that callers retry
// or gave up, and about ports that are taken, which Start replaces or returns.
type quietLog struct {
	zap    *zap.Logger
	silent *atomic.Bool
	tags   []tag.Tag
}

func newQuietLog(l *zap.Logger) quietLog {
	sampled := zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewSamplerWithOptions(c, repeats, 1, 0) })
	return quietLog{zap: cmp.Or(l, zap.NewNop()).Named("temporal").WithOptions(sampled), silent: new(atomic.Bool)}
}

// The methods below implement log.Logger and log.WithLogger.

func (q quietLog) Debug(string, ...tag.Tag)               {}
func (q quietLog) Info(string, ...tag.Tag)                {}
func (q quietLog) Warn(message string, tags ...tag.Tag)   { q.write(zap.WarnLevel, message, tags) }
func (q quietLog) Error(message string, tags ...tag.Tag)  { q.write(zap.ErrorLevel, message, tags) }
func (q quietLog) DPanic(message string, tags ...tag.Tag) { q.write(zap.ErrorLevel, message, tags) }
func (q quietLog) Panic(message string, tags ...tag.Tag)  { q.Fatal(message, tags...) }
func (q quietLog) With(tags ...tag.Tag) log.Logger {
	q.tags = slices.Concat(q.tags, tags)
	return q
}

// Fatal panics with a fatalError. While the server stops it ends only the goroutine: a
// listener may close before it has served.
func (q quietLog) Fatal(message string, tags ...tag.Tag) {
	if q.silent.Load() {
		runtime.Goexit()
	}
	err := fmt.Errorf("the server gave up: %s", strings.ToLower(message))
	if cause := q.write(zap.ErrorLevel, message, tags); cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	panic(fatalError{err})
}

type fatalError struct{ error }

// noHTTP begins a warning about the HTTP API, which is off on purpose.
const noHTTP = "HTTP API port has not been set."

// write logs a line, and returns the first error in its tags.
func (q quietLog) write(level zapcore.Level, message string, tags []tag.Tag) (cause error) {
	var fields []zap.Field
	for _, t := range slices.Concat(q.tags, tags) {
		zapped, ok := t.(tag.ZapTag)
		if !ok {
			continue // none of the server's own
		}
		field := zapped.Field()
		if err, ok := field.Interface.(error); ok && cause == nil {
			cause = err
		}
		if field.Key != "shard-id" {
			fields = append(fields, field)
		}
	}
	if !q.silent.Load() && !strings.HasPrefix(message, noHTTP) && !isPortTaken(cause) && !passes(cause) {
		q.zap.Log(level, message, fields...)
	}
	return cause
}

// passes reports whether a request failed that is made again, or that its caller gave up.
func passes(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "please retry") || err.Error() == "shard status unknown" ||
		strings.Contains(err.Error(), context.Canceled.Error()))
}
