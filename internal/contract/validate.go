package contract

import (
	"errors"

	"github.com/gpumux/gpumux"
)

// mistakes gathers what is wrong with an input. An input has a Validate only where a
// wrong one would do harm: endless work, another's queue, another's object.
type mistakes struct{ gpumux.InputError }

func (p *mistakes) err(what string) error {
	p.What = what
	return p.Err()
}

// asInMap checks the fields that an input shares with that of a map.
func (p *mistakes) asInMap(in gpumux.MapInput) {
	if in.Task == "" {
		in.Task = "any"
	}
	in.Range = &gpumux.Range{}
	var wrong *gpumux.InputError
	if errors.As(in.Validate(), &wrong) {
		for _, problem := range wrong.Problems {
			p.Add(problem.Field, "%s", problem.Message)
		}
	}
}

// count checks a number that is not negative.
func (p *mistakes) count(field string, n, most int64) {
	if n < 0 || n > most {
		p.Add(field, "%d is outside 0 to %d", n, most)
	}
}

// Validate returns an *InputError that names every mistake, or nil.
func (c Chunk) Validate() error {
	var bad mistakes
	bad.asInMap(gpumux.MapInput{Task: c.Task, Edition: c.Edition, Mode: c.Mode, Timeout: c.Timeout, Attempts: c.Attempts, Arg: c.Arg})
	bad.work("", c.Work)
	if n := c.Work.Len(); n < 1 || n > gpumux.MaxChunk {
		bad.Add("runs", "a chunk of %d items; it has 1 to %d", n, gpumux.MaxChunk)
	}
	switch {
	case c.Items != nil && c.Source == nil && c.Range == nil:
		if n := c.Work.Len(); int64(len(c.Items)) != n || c.List != nil {
			bad.Add("items", "a chunk of %d items carries %d", n, len(c.Items))
		}
	case c.Items == nil && c.Source != nil && c.Range == nil:
		bad.source("source.", *c.Source, c.last())
	case c.Items == nil && c.Source == nil && c.Range != nil:
		if n := c.Range.End - c.Range.Start; n < c.last() || n < 0 && c.Range.End >= c.Range.Start {
			bad.Add("range", "%d to %d has no item %d", c.Range.Start, c.Range.End, c.last()-1)
		}
	default:
		bad.Add("items", "give one of items, source and range")
	}
	bad.count("tries", int64(c.Tries), gpumux.MaxAttempts-1)
	if c.MayFail != nil {
		bad.count("mayFail", *c.MayFail, gpumux.MaxItems)
	}
	if c.Limit < 0 {
		bad.Add("limit", "%s is negative; 0 means none", c.Limit)
	}
	return bad.err("chunk")
}

// last is the end of the last run, 0 for a work list.
func (w Work) last() int64 {
	if len(w.Runs) == 0 {
		return 0
	}
	return w.Runs[len(w.Runs)-1].End
}

// work checks which items are to run.
func (p *mistakes) work(prefix string, w Work) {
	switch {
	case w.List != nil && w.Runs != nil:
		p.Add(prefix+"runs", "give only one of runs and list")
	case w.List != nil:
		p.source(prefix+"list.", *w.List, w.End)
		p.span(prefix, Span{Start: w.Start, End: w.End})
	case w.last() > gpumux.MaxItems:
		p.Add(prefix+"runs", "there is no item %d; a map has at most %d", w.last()-1, int64(gpumux.MaxItems))
	}
}

// Validate returns an *InputError that names every mistake, or nil.
func (c Handoff) Validate() error {
	var bad mistakes
	if c.Carry == nil {
		bad.Add("carry", "is missing")
	}
	return bad.err("state of a map")
}

func (p *mistakes) span(prefix string, s Span) {
	if s.Start < 0 || s.End < s.Start || s.End > gpumux.MaxItems {
		p.Add(prefix+"start", "items %d to %d do not lie within 0 to %d", s.Start, s.End, int64(gpumux.MaxItems))
	}
}

// source checks a file of items, which must have those before end.
func (p *mistakes) source(prefix string, s Source, end int64) {
	p.count(prefix+"items", s.Items, gpumux.MaxItems)
	if s.Items < end {
		p.Add(prefix+"items", "%d has no item %d", s.Items, end-1)
	}
}
