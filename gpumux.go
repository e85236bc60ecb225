package gpumux

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Mode says how long a task process lives.
type Mode string

const (
	// ModePersistent keeps the task process for the next item: the fast mode.
	ModePersistent Mode = "persistent"
	// ModeFresh starts a new task process for every item: nothing can leak from one item
	// to the next.
	ModeFresh Mode = "fresh"
)

// Limits on what travels inside Temporal's history instead of the store.
const (
	// InlineItems is the most items that a MapInput may carry itself.
	InlineItems = 1000
	// InlineBytes is the most bytes of items that a MapInput may carry itself, and of
	// results that a Summary does.
	InlineBytes = 512 << 10
	// MaxChunk is the most items that one chunk may hold.
	MaxChunk = 1 << 16
	// MaxArg is the most bytes of a MapInput's Arg, MaxArgFile of its ArgFile.
	MaxArg     = 16 << 10
	MaxArgFile = 16 << 20
	// MaxWindow is the most chunks that one map may have in flight, spread over as many
	// workflows as that takes.
	MaxWindow = 16_000
)

// AnyEdition is the Edition of a map that takes new code of its task as it comes.
const AnyEdition = "any"

// MapInput is the input of the workflow gpumux.Map. Exactly one of Items, Source and
// Range is given.
type MapInput struct {
	// Task is the name of a task that the workers of every pool on the ladder know.
	Task string `json:"task"`
	// Edition is the edition of the task's code to run with. Default: that of the first
	// worker that answers. All items run with one edition; where no worker has it, the map
	// fails. With "any", AnyEdition, each item runs with the code that its worker has, so
	// results of one map may come from several versions of the code.
	Edition string `json:"edition,omitempty"`
	// Items are at most InlineItems, and InlineBytes in all.
	Items []json.RawMessage `json:"items,omitzero"`
	// Source is a file of items, by its key in the workers' store or by URL: JSON lines,
	// .csv with a header, or the rows of a .parquet, .arrow or .feather file. See also
	// ValuesOf and FailedOf.
	Source string `json:"source,omitempty"`
	// Columns lists the columns of a table that its items have, in this order. Default: all.
	Columns []string `json:"columns,omitempty"`
	// Range makes the items the whole numbers start, start+1, … end-1.
	Range *Range `json:"range,omitempty"`
	// Arg is shared by all items, such as a configuration: a JSON value of at most MaxArg.
	// Processes find it in GPUMUX_ARG, in Python with gpumux.arg(). Default: none.
	Arg json.RawMessage `json:"arg,omitempty"`
	// ArgFile is a file with the JSON of a larger Arg, at most MaxArgFile, by its key in the
	// workers' store or by URL. Processes find a file of their own in GPUMUX_ARG_FILE, in
	// Python the value with gpumux.arg(). Starter makes it of a large Arg.
	ArgFile string `json:"argFile,omitempty"`
	// Ladder names the pools to use, first choice first. Default ["gpu"].
	Ladder []string `json:"ladder,omitempty"`
	// Patience is how long a pool may lack a worker with a healthy device before the next
	// one takes its work, until there is one again. Default 1 min; the last pool is always
	// waited for.
	Patience Duration `json:"patience,omitempty"`
	// PoolTimeout fails the map when there has been no worker with a healthy device for any
	// pool of the ladder for so long. A paused map waits. Default: it waits in any case.
	PoolTimeout Duration `json:"poolTimeout,omitempty"`
	// MapTimeout fails the map when it takes longer. Running items are ended. Default: none.
	MapTimeout Duration `json:"mapTimeout,omitempty"`
	// Mode overrides the task's own mode. Default: the task's, else the pool's.
	Mode Mode `json:"mode,omitempty"`
	// Chunk is the number of items per chunk; 0 lets the map learn it.
	Chunk int `json:"chunk,omitempty"`
	// Window is the number of chunks in flight; 0 lets the map learn it.
	Window int `json:"window,omitempty"`
	// Timeout bounds one item; 0 means the task's own, else none.
	Timeout Duration `json:"timeout,omitempty"`
	// Attempts is how often an item that raises is tried. Default 1. Deaths of the process
	// do not count.
	Attempts int `json:"attempts,omitempty"`
	// Backoff is the pause before an item that raised is tried again, without a slot. It
	// doubles with each try, up to a minute. Default: none, and the process stays.
	Backoff Duration `json:"backoff,omitempty"`
	// MaxFailures ends the map when more items than that have failed; "0" at the first that
	// fails. Failures of an earlier run do not count.
	MaxFailures Tolerance `json:"maxFailures,omitempty"`
	// Output is the results file: a blob URL or a key in the workers' store. Default: a file
	// in a folder of the map's run.
	Output string `json:"output,omitempty"`
	// Reduce is the name of a task that makes one value of a pair [a, b] and is associative;
	// the map makes one of all values with it. Failed items are left out.
	Reduce string `json:"reduce,omitempty"`
	// Key names a field of the items, which is copied into their results; null where an item
	// lacks it. WithItem copies the whole item.
	Key      string `json:"key,omitempty"`
	WithItem bool   `json:"withItem,omitempty"`
	// Priority is 1 (first) to 5 (last); 0 means the server's default, 3.
	Priority int `json:"priority,omitempty"`
	// FairnessKey shares a pool between keys, so that one large map does not hold up the
	// others. Default: the map's workflow has a key of its own.
	FairnessKey string `json:"fairnessKey,omitempty"`
	// FairnessWeight is the share of the key beside others, 0.001 to 1000. Default 1.
	FairnessWeight float64 `json:"fairnessWeight,omitempty"`
	// mistake was found in the JSON of the input.
	mistake *Problem
}

// Range is the whole numbers Start up to but not including End.
type Range struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

// Len is the number of items in the range.
func (r Range) Len() int64 { return max(0, r.End-r.Start) }

// Result is the outcome of one item. Exactly one of Value, Arrays and Fault is set.
type Result struct {
	// Index is the item's position in the input, from 0.
	Index int64           `json:"index"`
	Value json.RawMessage `json:"value,omitempty"`
	// Arrays is a value whose arrays are bytes; readers of results get the Value instead.
	Arrays []byte `json:"-"`
	Fault  *Fault `json:"fault,omitempty"`
	// Printed is the item's output and log, cut in the middle when it is long.
	Printed string `json:"output,omitempty"`
	// Files are the names of the files that the item kept with gpumux.save.
	Files []string `json:"files,omitempty"`
	// Key and Item are there if MapInput.Key and WithItem ask for them.
	Key  json.RawMessage `json:"key,omitempty"`
	Item json.RawMessage `json:"item,omitempty"`
}

// Weight is about how many bytes the result takes in JSON.
func (r Result) Weight() int {
	n := 40 + len(r.Value) + base64.StdEncoding.EncodedLen(len(r.Arrays)) + len(r.Printed) + len(r.Key) + len(r.Item)
	for _, name := range r.Files {
		n += 3 + len(name)
	}
	if r.Fault != nil {
		n += 300 + len(r.Fault.Item) + len(r.Fault.Message) + len(r.Fault.Traceback) + len(r.Fault.Tail)
	}
	return n
}

// Summary is the result of the workflow gpumux.Map.
type Summary struct {
	Task      string              `json:"task"`
	Items     int64               `json:"items"`
	Succeeded int64               `json:"succeeded"`
	Failed    int64               `json:"failed"`
	Faults    map[FaultKind]int64 `json:"faults,omitempty"`
	// Output is the URL of the results file. Results are its contents in input order, where
	// they are at most InlineItems and InlineBytes.
	Output  string   `json:"output,omitempty"`
	Results []Result `json:"results,omitempty"`
	// Reduced is the value that MapInput.Reduce made; if it is large, it lies at
	// ReducedOutput.
	Reduced       json.RawMessage `json:"reduced,omitempty"`
	ReducedOutput string          `json:"reducedOutput,omitempty"`
	// ReduceFault says why there is none, although the items themselves are done.
	ReduceFault *Fault `json:"reduceFault,omitempty"`
	// Busy is the time that slots spent on items, summed.
	Busy Duration `json:"busy"`
	// Elapsed is the time from the start of the workflow to its end.
	Elapsed Duration `json:"elapsed"`
	Chunks  int64    `json:"chunks"`
	// Peak is the memory that the items needed, where it was measured.
	Peak *Peaks `json:"peak,omitempty"`
	// PassedOver are pools of the ladder that had no worker with a healthy device for a
	// time.
	PassedOver []string `json:"passedOver,omitempty"`
}

// Progress is the answer to the query "progress".
type Progress struct {
	Task      string              `json:"task"`
	Phase     Phase               `json:"phase"`
	Items     int64               `json:"items"`
	Succeeded int64               `json:"succeeded"`
	Failed    int64               `json:"failed"`
	Faults    map[FaultKind]int64 `json:"faults,omitempty"`
	// InFlight is the number of chunks handed to pools and not yet back.
	InFlight int   `json:"inFlight"`
	Window   int   `json:"window"`
	Chunk    int   `json:"chunk"`
	Chunks   int64 `json:"chunks"`
	Paused   bool  `json:"paused"`
	// WaitingFor names what holds the map up, as far as its workflow knows, such as "a slot
	// of pool gpu". Empty: its work goes on.
	WaitingFor string    `json:"waitingFor,omitempty"`
	Started    time.Time `json:"started"`
	// Rate is items per second of workflow time, over the finished chunks.
	Rate float64 `json:"rate"`
	// Backlog counts the items without a result by rung of the ladder, served or not;
	// ItemTime is the time of one in a slot, 0 while unknown.
	Backlog  []RungBacklog `json:"backlog,omitempty"`
	ItemTime Duration      `json:"itemTime,omitempty"`
	// Recent are the newest failures, at most five.
	Recent []Result `json:"recent,omitempty"`
	Output string   `json:"output,omitempty"`
	// Waiting is how many items raised and wait to be tried again.
	Waiting int64 `json:"waiting,omitempty"`
	// Lost says why finished items run again, where their results were damaged or gone.
	Lost string `json:"lost,omitempty"`
	// PassedOver are the pools of the ladder that have no worker with a healthy device.
	PassedOver []string `json:"passedOver,omitempty"`
	// Peak is the memory that the finished items needed, where it was measured.
	Peak *Peaks `json:"peak,omitempty"`
}

// RungBacklog is the work left on a rung of a map's ladder: a pool, or one device of it.
// A reduce in a slot counts as one item.
type RungBacklog struct {
	Rung  string `json:"rung"`
	Items int64  `json:"items"`
}

// Phase is a stage of a map.
type Phase string

const (
	PhaseIndexing Phase = "indexing"
	PhaseRunning  Phase = "running"
	PhaseMerging  Phase = "merging"
	PhaseReducing Phase = "reducing"
	PhaseDone     Phase = "done"
)

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

// Err is the error, or nil if there is no mistake.
func (e *InputError) Err() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// Rungs is the ladder with its default.
func (in MapInput) Rungs() []string {
	if len(in.Ladder) == 0 {
		return []string{"gpu"}
	}
	return in.Ladder
}

// Len is the number of items, or -1 if only an index of the source can tell.
func (in MapInput) Len() int64 {
	switch {
	case in.Range != nil:
		return in.Range.Len()
	case in.Source != "":
		return -1
	}
	return int64(len(in.Items))
}
