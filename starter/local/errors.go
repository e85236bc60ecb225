package local

import (
	"fmt"
	"strings"
)

// MistakeError says why what the caller asked for cannot be done as it was asked. It lists everything that is wrong, in the words of the
// command line.
type MistakeError struct{ Problems []string }

// Error has a line for each problem.
func (e *MistakeError) Error() string { return strings.Join(e.Problems, "\n  ") }

func mistake(format string, args ...any) error {
	return &MistakeError{[]string{fmt.Sprintf(format, args...)}}
}

// UnavailableError says that something which a run needs could not be reached or started.
type UnavailableError struct{ Err error }

// Error is the cause's.
func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

func unavailable(format string, args ...any) error {
	return &UnavailableError{fmt.Errorf(format, args...)}
}
