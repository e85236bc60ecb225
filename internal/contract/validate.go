package contract

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
)

// MaxSlots is the most slots that a worker may say it has.
const MaxSlots = 1 << 20

// mistakes gathers what is wrong with an input.
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

func (p *mistakes) name(field, name string) {
	if n := len(name); n > gpumux.MaxName {
		p.Add(field, "has %d bytes, more than %d", n, gpumux.MaxName)
	}
}

func (p *mistakes) key(field, key string) {
	if n := len(key); n > gpumux.MaxKey {
		p.Add(field, "has %d bytes, more than %d", n, gpumux.MaxKey)
	}
}

// Validate returns an *InputError that names every mistake, or nil.
func (c Chunk) Validate() error {
	var bad mistakes
	bad.name("map", c.Map)
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
	bad.key("parts", c.Parts)
	bad.name("key", c.Key)
	if c.Tries < 0 || c.Tries >= gpumux.MaxAttempts {
		bad.Add("tries", "%d are outside 0 to %d", c.Tries, gpumux.MaxAttempts-1)
	}
	if c.MayFail != nil && *c.MayFail < 0 {
		bad.Add("mayFail", "%d is less than none", *c.MayFail)
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
	case w.List == nil && (w.Start != 0 || w.End != 0):
		p.Add(prefix+"start", "%d to %d are places of no list", w.Start, w.End)
	case w.List != nil && w.Runs != nil:
		p.Add(prefix+"runs", "give only one of runs and list")
	case w.List != nil:
		p.source(prefix+"list.", *w.List, w.End)
		p.span(prefix, gpumux.Span{Start: w.Start, End: w.End})
	case w.last() > gpumux.MaxItems:
		p.Add(prefix+"runs", "there is no item %d; a map has at most %d", w.last()-1, int64(gpumux.MaxItems))
	}
}

// Validate returns an *InputError that names every mistake, or nil.
func (in ListInput) Validate() error {
	var bad mistakes
	bad.given("parts", in.Parts)
	bad.work("", Work{Runs: in.Runs})
	if n := in.Runs.Len(); n > mostListed {
		bad.Add("runs", "%d items are more than the %d of one list", n, int64(mostListed))
	}
	return bad.err("input of WriteList")
}

// mostListed is the most items that a workflow moves into one work list.
const mostListed = 1 << 31

// Validate returns an *InputError that names every mistake, or nil.
func (in EditionInput) Validate() error {
	var bad mistakes
	if in.Task == "" {
		bad.Add("task", "is missing; give the name of a task that the workers know")
	}
	bad.name("task", in.Task)
	return bad.err("input of FindEdition")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in IndexInput) Validate() error {
	var bad mistakes
	bad.given("source", in.Source)
	bad.given("index", in.Index)
	if err := names.Columns(in.Source, in.Columns); err != nil {
		bad.Add("columns", "%v", err)
	}
	return bad.err("input of IndexSource")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in PartsInput) Validate() error {
	var bad mistakes
	bad.given("parts", in.Parts)
	if in.Items < 0 || in.Items > gpumux.MaxItems {
		bad.Add("items", "%d is outside 0 to %d", in.Items, int64(gpumux.MaxItems))
	}
	bad.cache(in.Cache)
	return bad.err("input of FindParts")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in PartInput) Validate() error {
	var bad mistakes
	bad.given("parts", in.Parts)
	for i, r := range in.Results {
		field := fmt.Sprintf("results[%d]", i)
		bad.result(field, r)
		if i > 0 && r.Index < in.Results[i-1].Index {
			bad.Add(field, "item %d comes after item %d; sort results by index", r.Index, in.Results[i-1].Index)
		}
	}
	return bad.err("input of WritePart")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in MergeInput) Validate() error {
	var bad mistakes
	bad.given("parts", in.Parts)
	bad.given("output", in.Output)
	bad.key("index", in.Index)
	if in.Items < 0 || in.Items > gpumux.MaxItems {
		bad.Add("items", "%d is outside 0 to %d", in.Items, int64(gpumux.MaxItems))
	}
	bad.cache(in.Cache)
	return bad.err("input of MergeParts")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in ReduceInput) Validate() error {
	var bad mistakes
	bad.name("map", in.Map)
	if strings.TrimSpace(in.Reduce) == "" {
		bad.Add("reduce", "is missing; use one of %s, or the name of a task", strings.Join(gpumux.Reduces(), ", "))
	}
	bad.asInMap(gpumux.MapInput{Edition: in.Edition, Reduce: in.Reduce, Timeout: in.Timeout, Attempts: in.Attempts, Arg: in.Arg})
	bad.key("folder", in.Folder)
	bad.span("", in.Span)
	given := 0
	for _, is := range []bool{in.Source != nil, len(in.Results) > 0, len(in.Partials) > 0} {
		if is {
			given++
		}
	}
	if given > 1 {
		bad.Add("source", "give only one of source, results and partials")
	}
	if in.Source != nil {
		bad.source("source.", *in.Source, in.End)
	}
	for i, r := range in.Results {
		bad.result(fmt.Sprintf("results[%d]", i), r)
	}
	for i, p := range in.Partials {
		field := fmt.Sprintf("partials[%d].", i)
		bad.span(field, p.Span)
		if p.Count < 0 || p.Count > gpumux.MaxItems {
			bad.Add(field+"count", "%d is outside 0 to %d", p.Count, int64(gpumux.MaxItems))
		}
		bad.key(field+"key", p.Key)
		if p.Count > 0 && p.Key == "" && p.Value == nil {
			bad.Add(field+"value", "is missing")
		}
	}
	return bad.err("input of Reduce")
}

// Validate returns an *InputError that names every mistake, or nil. It does not know the ladder: rungs are bounded alone.
func (c Carry) Validate() error {
	var bad mistakes
	if c.Source != nil {
		bad.source("source.", *c.Source, c.Items)
	}
	if c.Items < 0 || c.Items > gpumux.MaxItems {
		bad.Add("items", "%d is outside 0 to %d", c.Items, int64(gpumux.MaxItems))
	}
	for i, piece := range c.Todo {
		field := fmt.Sprintf("todo[%d].", i)
		bad.work(field, piece.Work)
		if piece.Len() < 1 || piece.Len() > c.Items || piece.last() > c.Items {
			bad.Add(field+"runs", "%d items up to %d are none of the %d", piece.Len(), piece.last(), c.Items)
		}
		if piece.Tries < 0 || piece.Tries >= gpumux.MaxAttempts {
			bad.Add(field+"tries", "%d are outside 0 to %d", piece.Tries, gpumux.MaxAttempts-1)
		}
		if piece.Rung < 0 || piece.Rung >= gpumux.MaxRungs || piece.Pace < 0 {
			bad.Add(field+"rung", "there is no rung %d at %s per item", piece.Rung, piece.Pace)
		}
	}
	for _, count := range []struct {
		field string
		n     int64
	}{{"succeeded", c.Succeeded}, {"failed", c.Failed}, {"chunks", c.Chunks}, {"largest", c.Largest}, {"beyond", c.Beyond},
		{"segments", int64(c.Segments)}, {"rounds", int64(c.Rounds)}} {
		if count.n < 0 || count.n > gpumux.MaxItems {
			bad.Add(count.field, "%d is outside 0 to %d", count.n, int64(gpumux.MaxItems))
		}
	}
	if c.MayFail != nil && *c.MayFail < 0 {
		bad.Add("mayFail", "%d is less than none", *c.MayFail)
	}
	if len(c.Editions) > gpumux.MaxRungs {
		bad.Add("editions", "are %d for %d rungs at most", len(c.Editions), gpumux.MaxRungs)
	}
	for _, edition := range append(slices.Clip(c.Editions), c.ReduceEdition) {
		bad.name("editions", edition)
	}
	if c.Busy < 0 || c.PerItem < 0 {
		bad.Add("busy", "%s and %s per item are no times", c.Busy, c.PerItem)
	}
	if c.Window < 0 || c.Window > gpumux.MaxWindow {
		bad.Add("window", "%d is outside 0 to %d", c.Window, gpumux.MaxWindow)
	}
	if c.Abreast < 0 || c.Abreast > gpumux.MaxWindow {
		bad.Add("abreast", "%d is outside 0 to %d", c.Abreast, gpumux.MaxWindow)
	}
	for _, worker := range slices.Sorted(maps.Keys(c.Slots)) {
		if n := c.Slots[worker]; n < 0 || n > MaxSlots {
			bad.Add("slots", "%.200s has %d", worker, n)
		}
	}
	return bad.err("state of a map")
}

func (p *mistakes) given(field, key string) {
	if key == "" {
		p.Add(field, "is missing; give a key of the store")
	}
	p.key(field, key)
}

func (p *mistakes) span(prefix string, s gpumux.Span) {
	if s.Start < 0 || s.End < s.Start || s.End > gpumux.MaxItems {
		p.Add(prefix+"start", "items %d to %d do not lie within 0 to %d", s.Start, s.End, int64(gpumux.MaxItems))
	}
}

func (p *mistakes) cache(c *Cache) {
	switch {
	case c == nil:
	case (c.Source == nil) == (c.Range == nil):
		p.Add("cache.source", "give either source or range")
	case c.Source != nil:
		p.source("cache.source.", *c.Source, 0)
	}
}

// source checks a file of items, which must have those before end.
func (p *mistakes) source(prefix string, s gpumux.Source, end int64) {
	p.given(prefix+"url", s.URL)
	p.given(prefix+"index", s.Index)
	if s.Items < 0 || s.Items > gpumux.MaxItems || s.Items < end {
		p.Add(prefix+"items", "%d has no item %d", s.Items, end-1)
	}
	if s.Bytes < 0 {
		p.Add(prefix+"bytes", "%d is less than none", s.Bytes)
	}
}

func (p *mistakes) result(field string, r gpumux.Result) {
	if r.Index < 0 || r.Index >= gpumux.MaxItems {
		p.Add(field+".index", "%d is outside 0 to %d", r.Index, int64(gpumux.MaxItems)-1)
	}
	if (r.Value == nil) == (r.Fault == nil) {
		p.Add(field, "has neither a value nor a fault, or both")
	}
}

// Validate returns an *InputError that names every mistake, or nil.
func (in OutputInput) Validate() error {
	var bad mistakes
	bad.name("map", in.Map)
	if in.Item < 0 || in.From < 0 {
		bad.Add("item", "%d from %d on is none", in.Item, in.From)
	}
	return bad.err("input of ReadOutput")
}

// Validate finds nothing wrong with it.
func (WatchInput) Validate() error { return nil }
