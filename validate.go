package gpumux

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/strict"
	"github.com/gpumux/gpumux/internal/text"
)

// Limits on what an input may ask for.
const (
	// MaxItems is the most items of a map.
	MaxItems = 1_000_000_000_000
	// MaxRungs is the most pools on a ladder, MaxStages the most stages of a map.
	MaxRungs  = 32
	MaxStages = 16
	// MaxName is the most bytes of a name, MaxKey of a URL or a key in the store.
	MaxName = names.Max
	MaxKey  = 4000
	// MaxAttempts is the most times that an item which raises is tried, maxTimeout the
	// longest that one, or a map, may take or wait.
	MaxAttempts = 100
	maxTimeout  = Duration(10 * 365 * 24 * time.Hour)
	// maxBackoff is the longest pause before an item that raised is tried again.
	maxBackoff = Duration(24 * time.Hour)
)

// UnmarshalJSON takes any JSON. Validate names what does not fit.
func (in *MapInput) UnmarshalJSON(data []byte) error {
	type fields MapInput // without this method
	*in = MapInput{}
	mistake := strict.Decode(data, (*fields)(in))
	if string(data) == "null" {
		mistake = &strict.Mistake{Message: "is nothing; an object belongs here"}
	}
	if mistake != nil {
		in.mistake = &Problem{cmp.Or(mistake.Field, "input"), mistake.Message}
	}
	return nil
}

// Validate returns an *InputError that names every mistake, or nil.
func (in MapInput) Validate() error {
	bad := &InputError{}
	if in.mistake != nil { // fields behind it were not read
		bad.Add(in.mistake.Field, "%s", in.mistake.Message)
		return bad
	}
	if n := len(in.Stages); n > MaxStages {
		bad.Add("stages", "are %d, more than %d", n, MaxStages)
		return bad
	} else if n > 0 && in.Task != "" {
		bad.Add("task", "is one of several; give either task or stages")
	}
	for i, step := range in.Steps() {
		step.validateStep(bad, text.When(in.Stages != nil, "stages[%d].", i))
	}
	in.validateItems(bad)
	bad.longest("source", in.Source, MaxKey)
	from, results, _ := names.CutResults(in.Source)
	bad.when(results && from == "", "source", "%q names no results file; a map whose results are in its summary has none, so give that map an output", in.Source)
	err := names.Columns(in.Source, in.Columns)
	bad.when(err != nil, "columns", "%v", err)
	bad.longest("output", in.Output, MaxKey)
	if in.Output != "" {
		if err := names.Output(in.Output); err != nil {
			bad.Add("output", "%v", err)
		} else if in.Output == from {
			bad.Add("output", "%q is the source itself, which would be overwritten; name another file", in.Output)
		}
	}
	if in.Range != nil && in.Range.End < in.Range.Start {
		bad.Add("range", "end %d is before start %d", in.Range.End, in.Range.Start)
	} else if in.Range != nil && (in.Range.End-in.Range.Start < 0 || in.Range.Len() > MaxItems) {
		bad.Add("range", "%d to %d are more than the %d items that a map may have", in.Range.Start, in.Range.End, int64(MaxItems))
	}
	bad.when(in.Window < 0 || in.Window > MaxWindow, "window", "%d is outside 0 (automatic) to %d", in.Window, MaxWindow)
	bad.limit("patience", in.Patience, maxTimeout)
	bad.limit("poolTimeout", in.PoolTimeout, maxTimeout)
	bad.limit("mapTimeout", in.MapTimeout, maxTimeout)
	bad.longest("argFile", in.ArgFile, MaxKey)
	bad.when(in.ArgFile != "" && in.Arg != nil, "argFile", "stands for arg; give one of them")
	_, _, err = in.MaxFailures.parse()
	bad.when(err != nil && in.MaxFailures != "", "maxFailures", "%v", err)
	bad.when(in.Priority < 0 || in.Priority > 5, "priority", "%d is outside 1 (first) to 5 (last)", in.Priority)
	bad.when(len(in.FairnessKey) > 64, "fairnessKey", "has %d bytes; the server takes at most 64", len(in.FairnessKey))
	w := in.FairnessWeight
	bad.when(w != 0 && !(w >= 0.001 && w <= 1000), "fairnessWeight", "%v is outside 0.001 to 1000", w)
	return bad.Err()
}

// validateStep checks what belongs to one task. The fields lie at a prefix.
func (in MapInput) validateStep(bad *InputError, at string) {
	bad.when(strings.TrimSpace(in.Task) == "", at+"task", "is missing; give the name of a task that the workers know")
	bad.longest(at+"task", in.Task, MaxName)
	bad.longest(at+"edition", in.Edition, MaxName)
	bad.when(len(in.Ladder) > MaxRungs, at+"ladder", "has %d pools, more than %d", len(in.Ladder), MaxRungs)
	for i, rung := range in.Ladder[:min(len(in.Ladder), MaxRungs)] {
		err := names.Pool(rung)
		bad.when(err != nil, fmt.Sprintf("%sladder[%d]", at, i), "%v", err)
	}
	if n := len(in.Arg); n > MaxArg {
		bad.Add(at+"arg", "has %s, more than %s; put it in the store, and name it as the map's argFile", Size(n), Size(MaxArg))
	} else if n > 0 && !json.Valid(in.Arg) {
		bad.Add(at+"arg", "%.80q is not JSON", in.Arg)
	}
	bad.when(in.Chunk < 0 || in.Chunk > MaxChunk, at+"chunk", "%d is outside 0 (automatic) to %d", in.Chunk, MaxChunk)
	bad.when(in.Mode != "" && in.Mode != ModePersistent && in.Mode != ModeFresh, at+"mode", "%.60q is unknown; use persistent or fresh", in.Mode)
	bad.limit(at+"timeout", in.Timeout, maxTimeout)
	bad.when(in.Attempts < 0 || in.Attempts > MaxAttempts, at+"attempts", "%d is outside 1 to %d", in.Attempts, MaxAttempts)
	bad.longest(at+"retryOn", strings.Join(in.RetryOn, ","), MaxKey)
	for i, name := range in.RetryOn {
		bad.when(name == "" || strings.TrimSpace(name) != name, fmt.Sprintf("%sretryOn[%d]", at, i),
			"%.60q is no name of an exception, such as TimeoutError or openai.RateLimitError", name)
	}
	bad.limit(at+"backoff", in.Backoff, maxBackoff)
}

func (in MapInput) validateItems(bad *InputError) {
	sources := 0
	for _, present := range []bool{in.Items != nil, in.Source != "", in.Range != nil} {
		if present {
			sources++
		}
	}
	bad.when(sources > 1, "items", "give only one of items, source and range")
	bad.when(sources == 0, "items", "nothing to map over; give one of items (may be empty: []), source and range")
	bad.when(len(in.Items) > InlineItems, "items", "%d items are more than the %d that travel inline; put them in a file and give source",
		len(in.Items), InlineItems)
	bytes := 0
	for i, item := range in.Items {
		bytes += len(item)
		if !json.Valid(item) {
			bad.Add("items", "item %d is not JSON: %.80q", i, item)
			break
		}
		if i == 0 && in.Key != "" {
			err := text.CheckField(item, in.Key)
			bad.when(err != nil, "key", "%v", err)
		}
	}
	bad.longest("key", in.Key, MaxName)
	bad.when(in.Key != "" && in.Range != nil, "key", "%.200q is no field: the items of a range are numbers", in.Key)
	bad.when(bytes > InlineBytes, "items", "%s of items are more than the %s that travel inline; put them in a file and give source",
		Size(bytes), Size(InlineBytes))
}

// limit checks a time that bounds something. A number of Go without a unit counts
// nanoseconds, which bound nothing here.
func (e *InputError) limit(field string, d, limit Duration) {
	if d < 0 || d > limit {
		e.Add(field, "%s is outside 0 (not given) to %s", d, limit)
	} else if 0 < d && d < Duration(time.Millisecond) {
		e.Add(field, "%s is less than 1ms; write 30 s as gpumux.Duration(30*time.Second) in Go, as 30 or \"30s\" in JSON", d)
	}
}

func (e *InputError) longest(field, text string, limit int) {
	e.when(len(text) > limit, field, "has %d bytes, more than %d", len(text), limit)
}

// Problem is one mistake in an input.
type Problem struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// InputError lists every mistake in an input.
type InputError struct {
	// What names the input, such as "chunk". Default: a map.
	What     string
	Problems []Problem
}

// Error names each field and what to change.
func (e *InputError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Field + ": " + p.Message
	}
	return "invalid " + cmp.Or(e.What, "map input") + ": " + strings.Join(lines, "; ")
}

// maxProblems is how many mistakes an error lists.
const maxProblems = 20

// Add notes a mistake. After the first 20 a last one stands for all others.
func (e *InputError) Add(field, format string, args ...any) {
	switch n := len(e.Problems); {
	case n < maxProblems:
		e.Problems = append(e.Problems, Problem{field, fmt.Sprintf(format, args...)})
	case n == maxProblems:
		e.Problems = append(e.Problems, Problem{"input", "has more mistakes than these"})
	}
}

// when adds a mistake if it was made.
func (e *InputError) when(made bool, field, format string, args ...any) {
	if made {
		e.Add(field, format, args...)
	}
}

// Err is the error, or nil if there is no mistake.
func (e *InputError) Err() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// SourceError is a mistake in an input file: trying again cannot help.
type SourceError struct {
	// Name is the file's name or URL, Line counts from 1, or is 0 where none is to blame.
	Name string
	Line int
	// Problem names the mistake, Text begins the offending text, Hint says what to do.
	Problem, Text, Hint string
}

// Error is one line: file:line: problem: text; hint.
func (e *SourceError) Error() string {
	return e.Name + text.When(e.Line > 0, ":%d", e.Line) + ": " + e.Problem + text.When(e.Text != "", ": %q", e.Text) +
		text.When(e.Hint != "", "; %s", e.Hint)
}
