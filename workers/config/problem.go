package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
)

// Problem is one mistake in a worker's configuration. Line is 0 where there is no file.
type Problem struct {
	gpumux.Problem
	Line int
}

// Error lists every mistake in a worker's configuration.
type Error struct {
	// File is empty for a configuration that was made by a program.
	File     string
	Problems []Problem
}

// Error has one line per mistake: file, line, field, what is wrong and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s", english.Plural(len(e.Problems), "mistake", ""), cmp.Or(e.File, "the worker's configuration"))
	for _, p := range e.Problems {
		line := text.When(e.File != "" && p.Line > 0, "%s:%d: ", e.File, p.Line)
		b.WriteString("\n  " + line + text.When(p.Field != "", "%s: ", p.Field) + p.Message)
	}
	return b.String()
}

type report struct {
	lines    map[string]int // of each field of the file
	problems []Problem
}

// add records a problem. A field that the file leaves out has the line of its parent.
func (r *report) add(field, format string, args ...any) {
	line := 0
	for at := field; line == 0 && at != ""; at = at[:max(strings.LastIndexAny(at, ".["), 0)] {
		line = r.lines[at]
	}
	r.problems = append(r.problems, Problem{gpumux.Problem{Field: field, Message: fmt.Sprintf(format, args...)}, line})
}

func (r *report) when(made bool, field, format string, args ...any) {
	if made {
		r.add(field, format, args...)
	}
}

// err is an *Error with the problems by line, or nil without any.
func (r *report) err(file string) error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return a.Line - b.Line })
	return &Error{File: file, Problems: r.problems}
}

// oneOf checks a word that may be left out.
func oneOf[S ~string](r *report, field string, value, first, second S) {
	r.when(value != "" && value != first && value != second, field, "%q is unknown; use %s or %s", value, first, second)
}
