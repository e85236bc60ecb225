// Package notice keeps what changes what the user of a map gets, such as a budget that
// nothing enforces.
//
// It owns the list of a worker's notices. It neither decides what is one nor shows them,
// and starts nothing.
package notice

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// List has the notices of a worker, each once, for many goroutines. Its zero value is
// ready, and a nil list only logs.
type List struct {
	// Say gets each notice in place of the log. Default: the log has it.
	Say func(text string)

	mu    sync.Mutex
	texts []string
}

func (l *List) All() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.texts)
}

// Warn adds a notice and says it, or writes it to the log.
func (l *List) Warn(log *zap.Logger, text string, fields ...zap.Field) {
	if l != nil {
		line := lineOf(text, fields)
		if news := l.add(line); l.Say != nil {
			if news {
				l.Say(line)
			}
			return
		}
	}
	log.Warn(text, fields...)
}

func (l *List) add(text string) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if news = !slices.Contains(l.texts, text); news {
		l.texts = append(l.texts, text)
	}
	return news
}

// lineOf puts a notice into words: what it is about, and why it is so.
func lineOf(text string, fields []zap.Field) string {
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
