package gpumux

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/internal/names"
)

// Names that clients in any language see. They never change once released.
const (
	// Queue carries workflows and light activities.
	Queue = names.Queue
	// MapWorkflow is the registered map.
	MapWorkflow = "gpumux.Map"

	// ProgressQuery answers with Progress.
	ProgressQuery = "progress"
	// PauseUpdate and ResumeUpdate steer a running map.
	PauseUpdate  = "pause"
	ResumeUpdate = "resume"
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
	Task string `json:"task,omitempty"`
	// Stages are several tasks in place of Task: the value of an item in one is its input
	// in the next, and all work at once. The results are the values of the last.
	Stages []Stage `json:"stages,omitempty"`
	// Edition is the edition of the task's code to run with. Default: that of the first
	// worker that answers. All items run with one edition; where no worker has it, the map
	// fails. With "any", AnyEdition, each item runs with the code that its worker has, so
	// results of one map may come from several versions of the code.
	Edition string `json:"edition,omitempty"`
	// Items are at most InlineItems, and InlineBytes in all.
	Items []json.RawMessage `json:"items,omitzero"`
	// Source is a file of items, by its key in the workers' store or by URL: JSON lines,
	// .csv with a header, or the rows of a .parquet file. See also ValuesOf and FailedOf.
	Source string `json:"source,omitempty"`
	// Columns lists the columns of a table that its items have, in this order. Default: all.
	Columns []string `json:"columns,omitempty"`
	// Range makes the items the whole numbers start, start+1, … end-1.
	Range *Range `json:"range,omitempty"`
	// Arg is shared by all items, such as a configuration: a JSON value of at most MaxArg.
	// Processes find it in GPUMUX_ARG, in Python with gpumux.arg(), and a class in its
	// constructor's arguments. Default: none.
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
	// RetryOn names the exceptions that Attempts is for, such as "TimeoutError" or
	// "openai.RateLimitError"; classes made of them count. In R it names classes of
	// conditions, and of a command its exit statuses, such as "75". Default: all.
	RetryOn []string `json:"retryOn,omitempty"`
	// Backoff is the pause before an item that raised is tried again, without a slot. It
	// doubles with each try, up to a minute. Default: none, and the process stays.
	Backoff Duration `json:"backoff,omitempty"`
	// MaxFailures ends the map when more items than that have failed; "0" at the first that
	// fails. Failures of an earlier run do not count.
	MaxFailures Tolerance `json:"maxFailures,omitempty"`
	// Output is the results file: a blob URL or a key in the workers' store. Default: a file
	// in a folder of the map's run.
	Output string `json:"output,omitempty"`
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

// Stage is one of several tasks that the items of a map go through. What it leaves out is
// that of the whole map.
type Stage struct {
	// Task, Edition and Ladder are those of the stage.
	Task    string   `json:"task"`
	Edition string   `json:"edition,omitempty"`
	Ladder  []string `json:"ladder,omitempty"`
	// Arg, Mode, Chunk, Timeout, Attempts, RetryOn and Backoff hold for the stage alone.
	Arg      json.RawMessage `json:"arg,omitempty"`
	Mode     Mode            `json:"mode,omitempty"`
	Chunk    int             `json:"chunk,omitempty"`
	Timeout  Duration        `json:"timeout,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	RetryOn  []string        `json:"retryOn,omitempty"`
	Backoff  Duration        `json:"backoff,omitempty"`
	// Keep leaves the values of the stage in the store when the map has ended, so that a
	// map of the same ID with other code in later stages need not run it again. The last
	// stage's values are the results.
	Keep bool `json:"keep,omitempty"`
}

// Steps are the inputs of the stages, each with a Task and no Stages. A map without
// Stages is its only step.
func (in MapInput) Steps() []MapInput {
	if len(in.Stages) == 0 {
		return []MapInput{in}
	}
	steps := make([]MapInput, len(in.Stages))
	for i, s := range in.Stages {
		step := in
		step.Stages, step.Task, step.Edition = nil, s.Task, cmp.Or(s.Edition, in.Edition)
		if len(s.Ladder) > 0 {
			step.Ladder = s.Ladder
		}
		if s.Arg != nil {
			step.Arg, step.ArgFile = s.Arg, ""
		}
		if len(s.RetryOn) > 0 {
			step.RetryOn = s.RetryOn
		}
		step.Mode, step.Chunk, step.Timeout = cmp.Or(s.Mode, in.Mode), cmp.Or(s.Chunk, in.Chunk), cmp.Or(s.Timeout, in.Timeout)
		step.Attempts, step.Backoff = cmp.Or(s.Attempts, in.Attempts), cmp.Or(s.Backoff, in.Backoff)
		steps[i] = step
	}
	return steps
}

// Name is what people call the map: its task, or those of its stages.
func (in MapInput) Name() string {
	tasks := []string{}
	for _, step := range in.Steps() {
		tasks = append(tasks, step.Task)
	}
	return strings.Join(tasks, " > ")
}

// Pools are all pools of the map, each once, in the order in which items meet them.
func (in MapInput) Pools() (pools []string) {
	for _, step := range in.Steps() {
		for _, pool := range step.Rungs() {
			if !slices.Contains(pools, pool) {
				pools = append(pools, pool)
			}
		}
	}
	return pools
}

// Range is the whole numbers Start up to but not including End.
type Range struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

// Len is the number of items in the range.
func (r Range) Len() int64 { return max(0, r.End-r.Start) }

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

// ValuesOf is the source whose items are the values in a results file, such as
// Summary.Output. Items that failed are none of them. The results of a map over it have
// the keys that are in the file, unless the map has a Key of its own.
func ValuesOf(output string) string { return names.ResultsScheme + output }

// FailedOf is the source whose items are those that failed, by a results file: a list of
// dead letters. The map that wrote it had WithItem. Keys are kept as by ValuesOf.
func FailedOf(output string) string { return names.FailedScheme + output }
