package task

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/gpumux/gpumux/internal/wire"
)

// raised describes an error. Its text has those that it wraps.
func raised(err error) wire.Raised {
	if p, ok := err.(*panicked); ok {
		r := wire.Raised{Class: "panic", Message: p.Error(), Traceback: p.stack}
		if cause, ok := p.value.(error); ok {
			r.Class = class(cause)
		}
		return r
	}
	return wire.Raised{Class: class(err), Message: err.Error()}
}

func class(err error) string { return strings.TrimPrefix(fmt.Sprintf("%T", err), "*") }

type panicked struct {
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprint(p.value) }

// caught is called while the panic unwinds; the stack starts at the frame that panicked.
func caught(value any) *panicked {
	stack := string(debug.Stack())
	if _, after, ok := strings.Cut(stack, "\npanic("); ok {
		// The two lines of panic itself go too.
		if lines := strings.SplitN(after, "\n", 3); len(lines) == 3 {
			stack = lines[2]
		}
	}
	return &panicked{value: value, stack: stack}
}
