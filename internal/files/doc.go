// Package files reads the items of a command from files, streams, URLs and patterns, and
// writes results to files and streams.
//
// It owns how flags name them, what is found out about them before any work, and that a
// file of results appears whole or not at all. It never talks to a server or prints. Its
// calls end with their context, even while a stream blocks.
package files

import (
	"fmt"

	"github.com/gpumux/gpumux/internal/local"
)

func usage(format string, args ...any) error {
	return &local.MistakeError{Problems: []string{fmt.Sprintf(format, args...)}}
}
