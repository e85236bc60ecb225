package task

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/gpumux/gpumux/internal/wire"
)

// maxChain bounds the causes that a fault lists.
const maxChain = 16

// raised describes an error with everything that it wraps.
func raised(err error) wire.Raised {
	if p, ok := err.(*panicked); ok {
		r := wire.Raised{Class: "panic", Message: p.Error(), Traceback: p.stack}
		if cause, ok := p.value.(error); ok {
			r.Class = class(cause)
			r.Chain = chain(cause, nil)
		}
		return r
	}
	return wire.Raised{Class: class(err), Message: err.Error(), Chain: chain(err, nil)}
}

// chain appends what err wraps, nearest first.
func chain(err error, to []wire.Cause) []wire.Cause {
	var inner []error
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, cause := range inner {
		if cause == nil || len(to) >= maxChain {
			break
		}
		to = chain(cause, append(to, wire.Cause{Class: class(cause), Message: cause.Error()}))
	}
	return to
}

func class(err error) string { return strings.TrimPrefix(fmt.Sprintf("%T", err), "*") }

// panicked is a panic of a handler.
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
