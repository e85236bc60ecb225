package app

import (
	"errors"
	"fmt"

	"github.com/gpumux/gpumux/starter/local"
)

// Exit codes.
const (
	// ExitOK: every item succeeded, or the command did what it was asked.
	ExitOK = 0
	// ExitFailed: items failed, and every other has its result; or what was asked for is not there.
	ExitFailed = 1
	// ExitUsage: the command or its input cannot work as given.
	ExitUsage = 2
	// ExitUnavailable: what is needed could not be reached or started.
	ExitUnavailable = 3
	// ExitBroken: the map failed as a whole, or the command did.
	ExitBroken = 4
	// ExitInterrupted: a signal ended the command.
	ExitInterrupted = 130
)

// Usage is one mistake in the command line.
func Usage(format string, args ...any) error {
	return &local.MistakeError{Problems: []string{fmt.Sprintf(format, args...)}}
}

// Unavailable is about what could not be reached or started.
func Unavailable(err error) error { return &local.UnavailableError{Err: err} }

// Exit ends the command with a code; its message has been printed.
type Exit int

// Error is for logs.
func (e Exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// ErrInterrupted is the cause of a context that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// Mistakes collects what is wrong with a command line.
type Mistakes []string

// Add adds one.
func (m *Mistakes) Add(format string, args ...any) { *m = append(*m, fmt.Sprintf(format, args...)) }

// Err is all of them as one error, or nil.
func (m Mistakes) Err() error {
	if len(m) == 0 {
		return nil
	}
	return &local.MistakeError{Problems: m}
}
