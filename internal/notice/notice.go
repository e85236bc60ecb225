// Package notice marks the entries of a worker's log that change what the user of a map
// gets, such as a budget that nothing enforces.
//
// It owns the mark and the list of what was said. It decides neither which entries are
// marked nor where they are shown. It starts nothing.
package notice

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Mark is the field that makes an entry of the log a notice. It is not written itself.
var Mark = zapcore.Field{Key: "notice", Type: zapcore.SkipType}

// List has the notices of a worker, each once. Its zero value is ready, for many
// goroutines.
type List struct {
	// Say gets each notice in place of the log. Default: the log has it.
	Say func(text string)

	mu   sync.Mutex
	said []string
}

// All are the notices so far.
func (l *List) All() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.said)
}

func (l *List) add(text string) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if news = !slices.Contains(l.said, text); news {
		l.said = append(l.said, text)
	}
	return news
}

// Log lets the list see the entries of a log, also those below its level.
func (l *List) Log(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return core{Core: c, list: l} }))
}

type core struct {
	zapcore.Core
	list   *List
	fields []zapcore.Field
}

func (c core) Enabled(level zapcore.Level) bool {
	return level >= zapcore.InfoLevel || c.Core.Enabled(level)
}

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.Core.With(fields), c.list, slices.Concat(c.fields, fields)}
}

func (c core) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if slices.ContainsFunc(fields, func(f zapcore.Field) bool { return f.Key == Mark.Key }) {
		text := line(e.Message, slices.Concat(c.fields, fields))
		news := c.list.add(text)
		if c.list.Say != nil {
			if news {
				c.list.Say(text)
			}
			return nil
		}
	}
	if !c.Core.Enabled(e.Level) {
		return nil
	}
	return c.Core.Write(e, fields)
}

// line puts an entry into words: what it is about, and why it is so.
func line(text string, fields []zapcore.Field) string {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	var about []string
	for _, key := range []string{"pool", "device", "task", "framework"} {
		if value, ok := values.Fields[key]; ok && value != "" {
			about = append(about, fmt.Sprintf("%s %v", key, value))
		}
	}
	if about != nil {
		text = strings.Join(about, ", ") + ": " + text
	}
	for _, key := range []string{"why", "error", "advice"} {
		if value, ok := values.Fields[key]; ok {
			text += fmt.Sprintf("; %v", value)
		}
	}
	return text
}
