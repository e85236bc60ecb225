package gpumux

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits on what an input may ask for.
const (
	// MaxItems is the most items of a map.
	MaxItems = 1_000_000_000_000
	// MaxRungs is the most pools on a ladder.
	MaxRungs = 32
	// MaxName is the most bytes of a name, MaxKey of a URL or a key in the store.
	MaxName = 1000
	MaxKey  = 4000
	// MaxAttempts is the most times that an item which raises is tried, MaxTimeout the longest that one may take.
	MaxAttempts = 100
	MaxTimeout  = Duration(10 * 365 * 24 * time.Hour)
	// MaxSlots is the most slots that a worker may say it has.
	MaxSlots = 1 << 20
)

// Validate returns an *InputError that names every mistake, or nil.
func (in MapInput) Validate() error {
	bad := slices.Clone(in.mistakes)
	if bad.about("input") {
		return bad.err("")
	}
	if strings.TrimSpace(in.Task) == "" && !bad.about("task") {
		bad.add("task", "is missing; give the name of a task that the workers know")
	}
	bad.name("task", in.Task)
	bad.name("edition", in.Edition)
	in.validateItems(&bad)
	bad.key("source", in.Source)
	bad.key("output", in.Output)
	if in.Range != nil && in.Range.End < in.Range.Start {
		bad.add("range", "end %d is before start %d", in.Range.End, in.Range.Start)
	} else if in.Range != nil && (in.Range.End-in.Range.Start < 0 || in.Range.Len() > MaxItems) {
		bad.add("range", "%d to %d are more than the %d items that a map may have", in.Range.Start, in.Range.End, int64(MaxItems))
	}
	if n := len(in.Ladder); n > MaxRungs {
		bad.add("ladder", "has %d pools, more than %d", n, MaxRungs)
	}
	for i, rung := range in.Ladder[:min(len(in.Ladder), MaxRungs)] {
		field := fmt.Sprintf("ladder[%d]", i)
		if _, err := RungQueue(rung); err != nil && !bad.about(field) {
			bad.add(field, "%v", err)
		}
	}
	if in.Chunk < 0 || in.Chunk > MaxChunk {
		bad.add("chunk", "%d is outside 0 (automatic) to %d", in.Chunk, MaxChunk)
	}
	if in.Window < 0 || in.Window > MaxWindow {
		bad.add("window", "%d is outside 0 (automatic) to %d", in.Window, MaxWindow)
	}
	bad.running(in.Mode, in.Timeout, in.Attempts)
	if in.Reduce != "" && strings.TrimSpace(in.Reduce) != in.Reduce {
		bad.add("reduce", "%.200q is no name; use one of %s, or the name of a task", in.Reduce, strings.Join(Reduces(), ", "))
	}
	bad.name("reduce", in.Reduce)
	if in.Priority < 0 || in.Priority > 5 {
		bad.add("priority", "%d is outside 1 (first) to 5 (last)", in.Priority)
	}
	if n := len(in.FairnessKey); n > 64 {
		bad.add("fairnessKey", "has %d bytes; the server takes at most 64", n)
	}
	return bad.err("")
}

// validateItems checks where the items come from.
func (in MapInput) validateItems(bad *problems) {
	sources := 0
	for _, given := range []bool{in.Items != nil || bad.about("items"), in.Source != "" || bad.about("source"),
		in.Range != nil || bad.about("range")} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		bad.add("items", "give only one of items, source and range")
	}
	if sources == 0 {
		bad.add("items", "nothing to map over; give one of items (may be empty: []), source and range")
	}
	if n := len(in.Items); n > InlineItems {
		bad.add("items", "%d items are more than the %d that travel inline; put them in a file and give source", n, InlineItems)
	}
	bytes := 0
	for i, item := range in.Items {
		bytes += len(item)
		if !json.Valid(item) {
			bad.add("items", "item %d is not JSON: %.80q", i, item)
			break
		}
	}
	if bytes > InlineBytes {
		bad.add("items", "%s of items are more than the %s that travel inline; put them in a file and give source",
			Size(bytes), Size(InlineBytes))
	}
}

// Validate returns an *InputError that names every mistake, or nil.
func (c Chunk) Validate() error {
	var bad problems
	bad.name("map", c.Map)
	bad.name("task", c.Task)
	bad.name("edition", c.Edition)
	bad.running(c.Mode, c.Timeout, c.Attempts)
	bad.work("", c.Work)
	if n := c.Work.Len(); n < 1 || n > MaxChunk {
		bad.add("runs", "a chunk of %d items; it has 1 to %d", n, MaxChunk)
	}
	switch {
	case c.Items != nil && c.Source == nil && c.Range == nil:
		if n := c.Work.Len(); int64(len(c.Items)) != n || c.List != nil {
			bad.add("items", "a chunk of %d items carries %d", n, len(c.Items))
		}
	case c.Items == nil && c.Source != nil && c.Range == nil:
		bad.source("source.", *c.Source, c.last())
	case c.Items == nil && c.Source == nil && c.Range != nil:
		if n := c.Range.End - c.Range.Start; n < c.last() || n < 0 && c.Range.End >= c.Range.Start {
			bad.add("range", "%d to %d has no item %d", c.Range.Start, c.Range.End, c.last()-1)
		}
	default:
		bad.add("items", "give one of items, source and range")
	}
	bad.key("parts", c.Parts)
	if c.Limit < 0 {
		bad.add("limit", "%s is negative; 0 means none", c.Limit)
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
func (p *problems) work(prefix string, w Work) {
	switch {
	case w.List == nil && (w.Start != 0 || w.End != 0):
		p.add(prefix+"start", "%d to %d are places of no list", w.Start, w.End)
	case w.List != nil && w.Runs != nil:
		p.add(prefix+"runs", "give only one of runs and list")
	case w.List != nil:
		p.source(prefix+"list.", *w.List, w.End)
		p.span(prefix, Span{w.Start, w.End})
	case w.last() > MaxItems:
		p.add(prefix+"runs", "there is no item %d; a map has at most %d", w.last()-1, int64(MaxItems))
	}
}

// Validate returns an *InputError that names every mistake, or nil.
func (in ListInput) Validate() error {
	var bad problems
	bad.given("parts", in.Parts)
	bad.work("", Work{Runs: in.Runs})
	if n := in.Runs.Len(); n > mostListed {
		bad.add("runs", "%d items are more than the %d of one list", n, int64(mostListed))
	}
	return bad.err("input of WriteList")
}

// mostListed is the most items that a workflow moves into one work list.
const mostListed = 1 << 31

// Validate returns an *InputError that names every mistake, or nil.
func (in EditionInput) Validate() error {
	var bad problems
	if in.Task == "" {
		bad.add("task", "is missing; give the name of a task that the workers know")
	}
	bad.name("task", in.Task)
	return bad.err("input of FindEdition")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in IndexInput) Validate() error {
	var bad problems
	bad.given("source", in.Source)
	bad.given("index", in.Index)
	return bad.err("input of IndexSource")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in PartsInput) Validate() error {
	var bad problems
	bad.given("parts", in.Parts)
	if in.Items < 0 || in.Items > MaxItems {
		bad.add("items", "%d is outside 0 to %d", in.Items, int64(MaxItems))
	}
	return bad.err("input of FindParts")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in PartInput) Validate() error {
	var bad problems
	bad.given("parts", in.Parts)
	for i, r := range in.Results {
		field := fmt.Sprintf("results[%d]", i)
		bad.result(field, r)
		if i > 0 && r.Index < in.Results[i-1].Index {
			bad.add(field, "item %d comes after item %d; sort results by index", r.Index, in.Results[i-1].Index)
		}
	}
	return bad.err("input of WritePart")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in MergeInput) Validate() error {
	var bad problems
	bad.given("parts", in.Parts)
	bad.given("output", in.Output)
	bad.key("index", in.Index)
	if in.Items < 0 || in.Items > MaxItems {
		bad.add("items", "%d is outside 0 to %d", in.Items, int64(MaxItems))
	}
	return bad.err("input of MergeParts")
}

// Validate returns an *InputError that names every mistake, or nil.
func (in ReduceInput) Validate() error {
	var bad problems
	bad.name("map", in.Map)
	if strings.TrimSpace(in.Reduce) == "" {
		bad.add("reduce", "is missing; use one of %s, or the name of a task", strings.Join(Reduces(), ", "))
	}
	bad.name("reduce", in.Reduce)
	bad.running("", in.Timeout, in.Attempts)
	bad.key("folder", in.Folder)
	bad.span("", in.Span)
	given := 0
	for _, is := range []bool{in.Source != nil, len(in.Results) > 0, len(in.Partials) > 0} {
		if is {
			given++
		}
	}
	if given > 1 {
		bad.add("source", "give only one of source, results and partials")
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
		if p.Count < 0 || p.Count > MaxItems {
			bad.add(field+"count", "%d is outside 0 to %d", p.Count, int64(MaxItems))
		}
		bad.key(field+"key", p.Key)
		if p.Count > 0 && p.Key == "" && p.Value == nil {
			bad.add(field+"value", "is missing")
		}
	}
	return bad.err("input of Reduce")
}

// Validate returns an *InputError that names every mistake, or nil. It does not know the ladder: rungs are bounded alone.
func (c Carry) Validate() error {
	var bad problems
	if c.Source != nil {
		bad.source("source.", *c.Source, c.Items)
	}
	if c.Items < 0 || c.Items > MaxItems {
		bad.add("items", "%d is outside 0 to %d", c.Items, int64(MaxItems))
	}
	for i, piece := range c.Todo {
		field := fmt.Sprintf("todo[%d].", i)
		bad.work(field, piece.Work)
		if piece.Len() < 1 || piece.Len() > c.Items || piece.last() > c.Items {
			bad.add(field+"runs", "%d items up to %d are none of the %d", piece.Len(), piece.last(), c.Items)
		}
		if piece.Rung < 0 || piece.Rung >= MaxRungs || piece.Pace < 0 {
			bad.add(field+"rung", "there is no rung %d at %s per item", piece.Rung, piece.Pace)
		}
	}
	for _, count := range []struct {
		field string
		n     int64
	}{{"succeeded", c.Succeeded}, {"failed", c.Failed}, {"chunks", c.Chunks}, {"largest", c.Largest}, {"beyond", c.Beyond},
		{"segments", int64(c.Segments)}, {"rounds", int64(c.Rounds)}} {
		if count.n < 0 || count.n > MaxItems {
			bad.add(count.field, "%d is outside 0 to %d", count.n, int64(MaxItems))
		}
	}
	if c.Busy < 0 || c.PerItem < 0 {
		bad.add("busy", "%s and %s per item are no times", c.Busy, c.PerItem)
	}
	if c.Window < 0 || c.Window > MaxWindow {
		bad.add("window", "%d is outside 0 to %d", c.Window, MaxWindow)
	}
	if c.Abreast < 0 || c.Abreast > MaxWindow {
		bad.add("abreast", "%d is outside 0 to %d", c.Abreast, MaxWindow)
	}
	for _, worker := range slices.Sorted(maps.Keys(c.Slots)) {
		if n := c.Slots[worker]; n < 0 || n > MaxSlots {
			bad.add("slots", "%.200s has %d", worker, n)
		}
	}
	return bad.err("state of a map")
}

// running checks how items run.
func (p *problems) running(mode Mode, timeout Duration, attempts int) {
	if mode != "" && mode != Persistent && mode != Fresh {
		p.add("mode", "%.60q is unknown; use persistent or fresh", mode)
	}
	if timeout < 0 {
		p.add("timeout", "%s is negative; 0 means no limit", timeout)
	} else if timeout > MaxTimeout {
		p.add("timeout", "%s is more than %s; 0 means no limit", timeout, MaxTimeout)
	}
	if attempts < 0 || attempts > MaxAttempts {
		p.add("attempts", "%d is outside 1 to %d", attempts, MaxAttempts)
	}
}

func (p *problems) name(field, name string) {
	if n := len(name); n > MaxName {
		p.add(field, "has %d bytes, more than %d", n, MaxName)
	}
}

func (p *problems) key(field, key string) {
	if n := len(key); n > MaxKey {
		p.add(field, "has %d bytes, more than %d", n, MaxKey)
	}
}

func (p *problems) given(field, key string) {
	if key == "" {
		p.add(field, "is missing; give a key of the store")
	}
	p.key(field, key)
}

func (p *problems) span(prefix string, s Span) {
	if s.Start < 0 || s.End < s.Start || s.End > MaxItems {
		p.add(prefix+"start", "items %d to %d do not lie within 0 to %d", s.Start, s.End, int64(MaxItems))
	}
}

// source checks a file of items of which those before end are wanted.
func (p *problems) source(prefix string, s Source, end int64) {
	p.given(prefix+"url", s.URL)
	p.given(prefix+"index", s.Index)
	if s.Items < 0 || s.Items > MaxItems || s.Items < end {
		p.add(prefix+"items", "%d has no item %d", s.Items, end-1)
	}
	if s.Bytes < 0 {
		p.add(prefix+"bytes", "%d is less than none", s.Bytes)
	}
}

func (p *problems) result(field string, r Result) {
	if r.Index < 0 || r.Index >= MaxItems {
		p.add(field+".index", "%d is outside 0 to %d", r.Index, int64(MaxItems)-1)
	}
	if (r.Value == nil) == (r.Fault == nil) {
		p.add(field, "has neither a value nor a fault, or both")
	}
}
