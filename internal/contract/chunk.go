package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
)

// Contact is how long items run on at least while the server does not answer, unless a
// worker's file says otherwise. MinContact and MaxContact bound it.
const (
	Contact    = 7 * time.Second
	MinContact = 2 * time.Second
	MaxContact = time.Hour
)

const (
	// HeartbeatEvery is the pause between the heartbeats of an activity, and before its
	// first one, unless the workers of a map have a short or a long contact.
	HeartbeatEvery = 10 * time.Second
	// HeartbeatTimeout is how long the server waits for a heartbeat before it hands an
	// activity on, unless the workers of a map say otherwise.
	HeartbeatTimeout = Contact + HeartbeatEvery + Arrival + Ending
	// Arrival is how long an activity may have been under way to its worker, Ending the time
	// that it has to end before the server hands it on. The clocks may differ by as much.
	Arrival = 5 * time.Second
	Ending  = time.Second
	// AnswerTimeout bounds an activity that only answers a question.
	AnswerTimeout = 10 * time.Second
	// beatsPerSecond bounds the heartbeats of a workflow's chunks; each is a write of it.
	beatsPerSecond = 50
)

// TimeoutOf is the heartbeat timeout of a map whose items run on for contact without the
// server. The last heartbeat may be PauseOf old. Who asks for little contact wants a lost
// worker noticed soon, who asks for much has time.
func TimeoutOf(contact gpumux.Duration) time.Duration {
	if contact == 0 {
		return HeartbeatTimeout
	}
	within := min(max(time.Duration(contact), MinContact), MaxContact)
	return within + max(min(HeartbeatEvery, within*3/2), within/4) + Arrival + Ending
}

// PauseOf is the pause between the heartbeats of an activity with a timeout of TimeoutOf,
// or a shorter one: the server cuts it to the timeout of the workflow. Each is a write of
// its workflow, one after the other, and may be billed.
func PauseOf(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return HeartbeatEvery
	}
	spare := max(timeout-Arrival-Ending, timeout*2/5)
	return max(min(HeartbeatEvery, spare*3/5), spare/5)
}

// TimeoutAbreast is TimeoutOf, or more where so many chunks that heartbeat side by side
// need a longer pause.
func TimeoutAbreast(contact gpumux.Duration, chunks int) time.Duration {
	timeout := TimeoutOf(contact)
	if pause := time.Duration(chunks) * time.Second / beatsPerSecond; pause > PauseOf(timeout) {
		timeout = max(timeout, 5*pause+Arrival+Ending)
	}
	return timeout
}

// Chunk is the input of the activity RunChunk: some items of one map.
type Chunk struct {
	// Map is the workflow's ID, for logs.
	Map  string `json:"map"`
	Task string `json:"task"`
	// Edition is the map's; a worker with another refuses the chunk. Empty: that of the
	// first item. gpumux.AnyEdition: that of each item.
	Edition  string          `json:"edition,omitempty"`
	Mode     gpumux.Mode     `json:"mode,omitempty"`
	Timeout  gpumux.Duration `json:"timeout,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	RetryOn  []string        `json:"retryOn,omitempty"`
	Arg      json.RawMessage `json:"arg,omitempty"`
	ArgFile  string          `json:"argFile,omitempty"`
	// MayFail is how many items may fail before the rest is handed back; nil: any number.
	MayFail *int64 `json:"mayFail,omitempty"`
	// Backoff hands back what raises in Retry, until it was tried Attempts times; Tries were
	// before.
	Backoff bool `json:"backoff,omitempty"`
	Tries   int  `json:"tries,omitempty"`
	// Work is which items.
	Work
	// Items are in the order of Work when they travel inline; else Source, Range or Values
	// has them.
	Items  []json.RawMessage `json:"items,omitempty"`
	Source *Source           `json:"source,omitempty"`
	Range  *gpumux.Range     `json:"range,omitempty"`
	// Values has the results of the stage before. Items that failed there are copied.
	Values *Values `json:"values,omitempty"`
	// Feeds says that another stage takes the values: the result tells where they lie.
	Feeds bool `json:"feeds,omitempty"`
	// Parts is the folder that takes the results. Without one they are in the ChunkResult.
	Parts string `json:"parts,omitempty"`
	// Claim is the map's to that folder. A worker with another store refuses the chunk.
	Claim    Claim  `json:"claim,omitzero"`
	Key      string `json:"key,omitempty"`
	WithItem bool   `json:"withItem,omitempty"`
	// Larger: the ladder has another rung for items that need more memory.
	Larger bool `json:"larger,omitempty"`
	// Limit is the time after which the chunk hands back the rest; 0 means none.
	Limit gpumux.Duration `json:"limit,omitempty"`
	// Together is how many items a slot has under way at a time; 0: one, or nobody has told.
	// Guessed: nobody has. If a slot's process takes several, it hands back all of the
	// chunk, to be cut anew.
	Together int64 `json:"together,omitempty"`
	Guessed  bool  `json:"guessed,omitempty"`
}

// Validate refuses a chunk whose items are too many, or are not there.
func (c Chunk) Validate() error {
	bad := gpumux.InputError{What: "chunk"}
	n := c.Work.Len()
	if n < 1 || n > gpumux.MaxChunk {
		bad.Add("runs", "a chunk of %d items; it has 1 to %d", n, gpumux.MaxChunk)
	}
	ways := 0
	for _, has := range []bool{c.Items != nil, c.Source != nil, c.Range != nil, c.Values != nil} {
		if has {
			ways++
		}
	}
	switch {
	case ways != 1:
		bad.Add("items", "give one of items, source, range and values")
	case c.Items != nil && (int64(len(c.Items)) != n || c.List != nil):
		bad.Add("items", "a chunk of %d items carries %d", n, len(c.Items))
	}
	return bad.Err()
}

// Values are the results of a stage: a folder, and the parts of it that have those of a
// chunk. Without any the folder's catalog knows the parts; see store.FindParts.
type Values struct {
	Folder string    `json:"folder"`
	Parts  []Written `json:"parts,omitempty"`
}

// Written are parts of one writer, First up to and including Last, which may be Unknown.
type Written struct {
	Writer string `json:"writer"`
	First  int    `json:"first"`
	Last   int    `json:"last"`
}

// Unknown is the last part of attempts that did not tell.
const Unknown = math.MaxInt32

// JoinWritten is the parts of both, one entry per writer.
func JoinWritten(a, b []Written) []Written {
	all := slices.Clone(a)
	for _, w := range b {
		at := slices.IndexFunc(all, func(known Written) bool { return known.Writer == w.Writer })
		if at < 0 {
			all = append(all, w)
			continue
		}
		all[at].First, all[at].Last = min(w.First, all[at].First), max(w.Last, all[at].Last)
	}
	return all
}

// FirstInline is the most items of a chunk of a task that has many under way at a time,
// where nothing but the history can take results: nobody knows what they weigh.
const FirstInline = 64

// Claim is a map's right to a folder of parts, as FindParts gave it.
type Claim struct {
	// ID is that of the manifest, which names the owner of the parts.
	ID string `json:"id,omitempty"`
	// Store is the identity of the store with the folder, StoreURL where it was opened.
	Store    string `json:"store,omitempty"`
	StoreURL string `json:"storeURL,omitempty"`
}

type ChunkResult struct {
	// Results are in order of index; empty when they were written to the store.
	Results []gpumux.Result `json:"results,omitempty"`
	// Covered is how many items, from the first on, are done: fewer than all after more
	// failures than may be, after Limit, or where the chunk was Guessed. Pace is the time
	// per item after Limit.
	Covered int64           `json:"covered"`
	Pace    gpumux.Duration `json:"pace,omitempty"`
	Counts
	// Recent are a few of the failures, without their values, for people to look at.
	Recent []gpumux.Result `json:"recent,omitempty"`
	// Escalate are the items that need the next rung, without a result.
	Escalate Runs `json:"escalate,omitempty"`
	// Retry are the items to be tried again after a pause, without a result.
	Retry Runs `json:"again,omitempty"`
	// Contact is how long items run on without the server; see TimeoutOf. 0: Contact.
	Contact gpumux.Duration `json:"contact,omitempty"`
	// Ran is how many items ran in this call; the others had a stored result already.
	Ran int64 `json:"ran"`
	// Batch is the most items that the task takes in one call, Concurrent how many it runs
	// at the same time; 0: one after the other.
	Batch      int64 `json:"batch,omitempty"`
	Concurrent int64 `json:"concurrent,omitempty"`
	// Busy is the time that the slot was held for them, or their share of it where other
	// items ran at the same time.
	Busy gpumux.Duration `json:"busy"`
	// Held is the time of the attempt that ended the chunk. For the rest of its time in
	// flight it waited. 0: not known.
	Held gpumux.Duration `json:"held,omitempty"`
	// Edition is the edition of the task's code that items ran with in this call.
	Edition string `json:"edition,omitempty"`
	// Peak is the memory of the items that ran in this call and were measured.
	Peak *gpumux.Peaks `json:"peak,omitempty"`
	// GPU is what GPUs did for the calls of the chunk.
	GPU *gpumux.GPUUse `json:"gpu,omitempty"`
	// Of a chunk that Feeds a stage: Done are the items with a result, Written the parts
	// that have them, Bytes what they weigh.
	Done    Runs      `json:"done,omitempty"`
	Written []Written `json:"written,omitempty"`
	Bytes   int64     `json:"bytes,omitempty"`
	// Lost are items whose value of the stage before is gone, without a result.
	Lost Runs `json:"lost,omitempty"`
	// Worker and Slots are how many slots of the pool a worker has. The window follows their
	// number.
	Worker string `json:"worker,omitempty"`
	Slots  int    `json:"slots,omitempty"`
}

type EditionInput struct {
	Task string `json:"task"`
}

type Edition struct {
	Edition string `json:"edition"`
	// Slots is how many the workers of the queue have together, if all are like the one that
	// answers; 0: not known.
	Slots int `json:"slots,omitempty"`
	// Contact is as in ChunkResult.
	Contact gpumux.Duration `json:"contact,omitempty"`
}

type IndexInput struct {
	Source string `json:"source"`
	// Index is the key that the index is written to.
	Index string `json:"index"`
	// Key is the map's, which the first item must have.
	Key     string   `json:"key,omitempty"`
	Columns []string `json:"columns,omitempty"`
}

type MergeInput struct {
	Parts  string `json:"parts"`
	Output string `json:"output"`
	Items  int64  `json:"items"`
	Claim  Claim  `json:"claim,omitzero"`
	// Spent are the folders of stages that are of use for another try of failed items alone.
	Spent []string `json:"spent,omitempty"`
	// Kept are the folders of stages whose values stay. Faults go: another try of the failed
	// items begins with them.
	Kept []string `json:"kept,omitempty"`
}

// Merged is the result of MergeParts, counted from the parts themselves.
type Merged struct {
	Items int64 `json:"items"`
	Counts
	Bytes int64 `json:"bytes"`
	// Output is the blob URL of the results file. Empty: nothing was written, and Missing
	// says why.
	Output string `json:"output,omitempty"`
	// Results are those in the file, if they are few and small.
	Results []gpumux.Result `json:"results,omitempty"`
	// Missing says which item has no result, and why where that is known.
	Missing string `json:"missing,omitempty"`
}

type PartsInput struct {
	Parts string `json:"parts"`
	Items int64  `json:"items"`
	Owner Owner  `json:"owner"`
	// Stages are the folders of the stages before the last.
	Stages []string `json:"stages,omitempty"`
}

// Owner identifies the map of a folder of parts by all that decides its values.
type Owner struct {
	Task    string `json:"task"`
	Edition string `json:"edition,omitempty"`
	// Input is the source with its hash, the range, or the hash of items that travel inline.
	Input string `json:"input"`
	Items int64  `json:"items"`
	// Arg is a hash of the argument that the items share, and of those of stages.
	Arg string `json:"arg,omitempty"`
	// Key and WithItem say which parts of their items the results have.
	Key      string `json:"key,omitempty"`
	WithItem bool   `json:"withItem,omitempty"`
}

// OwnerOf is the owner of a map's parts: parts with another one are of another map. The
// source is nil where the input has none.
func OwnerOf(in gpumux.MapInput, items int64, source *Source) Owner {
	editions := []string{}
	for _, step := range in.Steps() {
		editions = append(editions, step.Edition)
	}
	o := Owner{Task: in.Name(), Edition: strings.Join(editions, " > "), Items: items, Key: in.Key, WithItem: in.WithItem}
	if !slices.ContainsFunc(editions, func(e string) bool { return e != gpumux.AnyEdition }) {
		o.Edition = gpumux.AnyEdition
	}
	switch {
	case source != nil:
		o.Input = fmt.Sprintf("%s, content %s", in.Source, source.Hash)
	case in.Range != nil:
		o.Input = fmt.Sprintf("the range %d to %d", in.Range.Start, in.Range.End)
	default:
		hash := sha256.New()
		for _, item := range in.Items {
			hash.Write(append(item, '\n'))
		}
		o.Input = fmt.Sprintf("items that came with the map, content %x", hash.Sum(nil)[:16])
	}
	arg := append([]byte(in.ArgFile), in.Arg...)
	for i, stage := range in.Stages {
		if stage.Arg != nil {
			arg = fmt.Appendf(arg, "\n%d %s", i, stage.Arg)
		}
	}
	if len(arg) > 0 {
		sum := sha256.Sum256(arg)
		o.Arg = hex.EncodeToString(sum[:16])
	}
	return o
}

// Found is the result of FindParts: what earlier runs of the same map have stored, and
// which items are left for each stage.
type Found struct {
	Claim  Claim        `json:"claim"`
	Stages []FoundStage `json:"stages"`
	// Taken, with nothing else, says that the folder has results of other code of a map of
	// several stages: which code.
	Taken string `json:"taken,omitempty"`
	// Damaged names parts that were unreadable and set aside; their items run again.
	Damaged []string `json:"damaged,omitempty"`
}

// FoundStage is what is left for a stage, and which items ended in it.
type FoundStage struct {
	Rest Work `json:"rest"`
	Counts
}

// ListInput is the input of WriteList: items whose pattern is too long to travel.
type ListInput struct {
	Parts string `json:"parts"`
	Runs  Runs   `json:"runs"`
}

// largestItem is the most bytes of one item that travels inline.
const largestItem = 1 << 20

// EncodeItem is the JSON of an item that travels inline. The error goes on behind the
// item's name; instead says what to do with one that is too large.
//
//workflowcheck:ignore
func EncodeItem(item any, instead string) (json.RawMessage, error) {
	encoded, err := json.Marshal(item)
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if len(encoded) > largestItem {
		return nil, fmt.Errorf("has %s, more than the %s that travel inline; %s", gpumux.Size(len(encoded)), gpumux.Size(largestItem), instead)
	}
	return encoded, nil
}
