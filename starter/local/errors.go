package local

import (
	"fmt"
	"strings"
)

// Mistake says why what the caller asked for cannot be done as it was asked. It lists everything that is wrong, in the words of the
// command line.
type Mistake struct{ Problems []string }

// Error has a line for each problem.
func (e *Mistake) Error() string { return strings.Join(e.Problems, "\n  ") }

func mistake(format string, args ...any) error {
	return &Mistake{[]string{fmt.Sprintf(format, args...)}}
}

// Unavailable says that something which a run needs could not be reached or started.
type Unavailable struct{ Err error }

// Error is the cause's.
func (e *Unavailable) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Unavailable) Unwrap() error { return e.Err }

func unavailable(format string, args ...any) error { return &Unavailable{fmt.Errorf(format, args...)} }
