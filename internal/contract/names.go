package contract

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
)

// Names of workflows and activities that only gpumux itself starts. They never change
// once released. An input that older workers would get wrong gets a new name: Temporal
// tries what a worker does not know again, until one has it that does.
const (
	// SegmentWorkflow runs a stretch of a map that is too long for one history; only
	// gpumux.Map starts it.
	SegmentWorkflow = "gpumux.Segment"
	// DescribeWorkflow runs DescribeWorker for clients of servers without standalone
	// activities.
	DescribeWorkflow = "gpumux.Describe"
	// RunChunk runs the items of a chunk in a slot.
	RunChunk = "gpumux.RunChunk"
	// IndexSource finds where the items of a source begin.
	IndexSource = "gpumux.IndexSource"
	// MergeParts turns the parts of a map into one results file in input order.
	MergeParts = "gpumux.MergeParts"
	// FindEdition finds the edition of a task's code that a worker of a pool has.
	FindEdition = "gpumux.FindEdition"
	// WatchPool runs for as long as a worker has a healthy device in a pool; see WatchInput.
	WatchPool = "gpumux.WatchPool"
	// FindParts claims the folder of a map's results and finds the items without one.
	FindParts = "gpumux.FindParts"
	// ReadPage reads results of a results file; see PageInput.
	ReadPage = "gpumux.ReadPage"
	// WriteList stores a list of items whose pattern is too long to travel.
	WriteList = "gpumux.WriteList"
	// DescribeWorker tells a client what a worker offers: its store, pools and tasks.
	DescribeWorker = "gpumux.DescribeWorker"
)

// WatchQueue carries WatchPool beside the queue of a pool, whose workers ask it for work
// even when their slots are busy.
func WatchQueue(queue string) string { return queue + ".watch" }

type WatchInput struct {
	// Once ends it as soon as there is a worker with a healthy device.
	Once bool `json:"once,omitempty"`
}

// PageInput is the input of ReadPage: results from a byte of a results file on, at most
// so many, or 0.
type PageInput struct {
	Output string `json:"output"`
	From   int64  `json:"from,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

func (in PageInput) Validate() error {
	bad := gpumux.InputError{What: "page"}
	if in.From < 0 || in.Limit < 0 {
		bad.Add("from", "byte %d, and at most %d results; neither is below 0", in.From, in.Limit)
	}
	if in.Output == "" {
		bad.Add("output", "is missing; give the Output of the summary of a map that has completed")
	}
	return bad.Err()
}

// Page is the answer of ReadPage. Next is the byte behind it, or 0 at the end.
type Page struct {
	Results []gpumux.Result `json:"results,omitempty"`
	Next    int64           `json:"next,omitempty"`
}

// WorkerQueue is the task queue of one worker, on which it tells clients what it offers.
func WorkerQueue(identity string) string { return gpumux.Queue + "@" + identity }

// Names in the folder of a map, beside the parts and the manifest of package store.

var unclean = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// OutputOf is the key of the results file of a map that names none, in a folder of its
// first run.
func OutputOf(id, run string) string {
	id = strings.Trim(unclean.ReplaceAllString(id, "-"), ".")
	return path.Join("maps", cmp.Or(id, "map"), run, "results.jsonl")
}

// PartsOf is the folder of a results file while that is being made.
func PartsOf(output string) string { return output + names.PartsEnding }

// StageFolder is the folder of a stage before the last, by its place from 0. The owner of
// all up to it is in its name, so that other code of it has another folder. It lies with
// the map's ID where the results do, so that other code of later stages finds it, and
// else beside the results.
//
//workflowcheck:ignore
func StageFolder(output string, at int, owner Owner) string {
	text, _ := json.Marshal(owner) // it always encodes
	sum := sha256.Sum256(text)
	beside := output + "."
	if parts := strings.Split(output, "/"); len(parts) == 4 && parts[0] == "maps" {
		beside = path.Join(parts[:2]...) + "/"
	}
	return fmt.Sprintf("%s%s%d-%x/%s", beside, StagePrefix, at+1, sum[:8], PartsOf(ArraysOutput))
}

// StagePrefix begins the name of what is deleted of a stage.
const StagePrefix = "stage-"

// ArraysOutput is the name of a results file in which arrays lie as bytes. Only package
// store can read it.
const ArraysOutput = "results.bytes.jsonl"

// KeepsArrays reports whether the results file with a folder keeps arrays as bytes.
func KeepsArrays(parts string) bool { return strings.HasSuffix(parts, "/"+PartsOf(ArraysOutput)) }

// SourceIndexOf is the key of the index of a source that is not the store's own.
func SourceIndexOf(parts string) string { return parts + "/source.index" }
