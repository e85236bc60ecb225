package contract

import (
	"cmp"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// Carry is the state of a map between its workflows: from one run to the next, from a map
// to a segment, and from a segment back.
type Carry struct {
	Source *Source `json:"source,omitempty"`
	Claim  Claim   `json:"claim,omitzero"`
	// Stages are in order; a map with one task has one.
	Stages  []StageCarry `json:"stages"`
	Items   int64        `json:"items"`
	Started time.Time    `json:"started"`
	Paused  bool         `json:"paused,omitempty"`
	// MayFail is how many more items may fail; nil means any number.
	MayFail *int64 `json:"mayFail,omitempty"`
	// Abreast is how many segments of the map run at once; 0 means two.
	Abreast  int `json:"abreast,omitempty"`
	Segments int `json:"segments,omitempty"`
	// Recent are the newest failures, as many as a Progress has.
	Recent []gpumux.Result `json:"recent,omitempty"`
	// Rounds is how often the merge has found items missing so far.
	Rounds int `json:"rounds,omitempty"`
	// Contact is the contact of the map's chunks; see TimeoutOf.
	Contact gpumux.Duration `json:"contact,omitempty"`
}

type StageCarry struct {
	Todo Backlog `json:"todo"`
	Counts
	Chunks int64           `json:"chunks"`
	Ran    int64           `json:"ran,omitempty"`
	Busy   gpumux.Duration `json:"busy"`
	Peak   *gpumux.Peaks   `json:"peak,omitempty"`
	GPU    *gpumux.GPUUse  `json:"gpu,omitempty"`
	Pace
	Slots map[string]int `json:"slots,omitempty"`
	// Beyond is how many items wait outside of a segment, so that its chunks need not shrink
	// toward its own end.
	Beyond int64 `json:"beyond,omitempty"`
	// Passed are the rungs that were passed over, and whether they still are.
	Passed map[int]bool `json:"passed,omitempty"`
	// Values is how many values of it were weighed, Weight their bytes.
	Values int64 `json:"values,omitempty"`
	Weight int64 `json:"weight,omitempty"`
}

type Pace struct {
	Largest int64           `json:"largest"`
	PerItem gpumux.Duration `json:"perItem"`
	// Flight is how long chunks were in flight, Held how long of that they had a slot.
	Flight gpumux.Duration `json:"flight,omitempty"`
	Held   gpumux.Duration `json:"held,omitempty"`
	// Likely is the expected number of slots before a chunk has told of any.
	Likely int `json:"likely,omitempty"`
	// Batch and Concurrent are as in ChunkResult.
	Batch      int64 `json:"batch,omitempty"`
	Concurrent int64 `json:"concurrent,omitempty"`
}

// Piece is work that still has to be done on a rung of the ladder.
type Piece struct {
	Work
	// From are the parts with the items' values of the stage before, where it is known.
	From []Written `json:"from,omitempty"`
	Rung int       `json:"rung,omitempty"`
	// Pace is the time per item in the chunk that handed the piece back, if that was longer
	// than elsewhere.
	Pace gpumux.Duration `json:"pace,omitempty"`
	// Tries is how often the items have raised, Due when they may be tried again.
	Tries int       `json:"tries,omitempty"`
	Due   time.Time `json:"due,omitzero"`
}

// Handoff is the input and the state of a map, from one run to the next and to segments.
// No caller can give it to gpumux.Map, which takes it only if the server says that the
// run continues another.
type Handoff struct {
	Input Input  `json:"input"`
	Carry *Carry `json:"carry"`
}

func (c Handoff) Validate() error {
	bad := gpumux.InputError{What: "state of a map"}
	if c.Carry == nil {
		bad.Add("carry", "is missing")
	}
	return bad.Err()
}

// Input is the input of a map on its way to the next workflow: a field that only a newer
// worker knows is ignored.
type Input gpumux.MapInput

// Counts are the results of a map, or of a stage, so far.
type Counts struct {
	Succeeded int64                      `json:"succeeded"`
	Failed    int64                      `json:"failed"`
	Faults    map[gpumux.FaultKind]int64 `json:"faults,omitempty"`
}

// Count adds the result of an item that failed so, or succeeded where that is empty.
func (c *Counts) Count(failed gpumux.FaultKind) {
	if failed == "" {
		c.Succeeded++
	} else {
		c.Add(Counts{Failed: 1, Faults: map[gpumux.FaultKind]int64{failed: 1}})
	}
}

// Add adds further results.
//
//workflowcheck:ignore
func (c *Counts) Add(more Counts) {
	c.Succeeded += more.Succeeded
	c.Failed += more.Failed
	if len(more.Faults) > 0 && c.Faults == nil {
		c.Faults = map[gpumux.FaultKind]int64{}
	}
	for kind, n := range more.Faults {
		c.Faults[kind] += n
	}
}

// ReadMap reads the input of this run of gpumux.Map, with the state that the run before
// left. It takes one argument.
func ReadMap(ctx workflow.Context, raw, second converter.RawValue) (gpumux.MapInput, *Carry, error) {
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		if in, carry, err := handoff(raw); err == nil { // else a cron schedule starts the map again
			return in, carry, nil
		}
	}
	var in gpumux.MapInput
	err := cmp.Or(Absent(second, "is followed by a second argument; give one object"), DecodePayload(raw, &in))
	return in, nil, err
}

func ReadSegment(ctx workflow.Context, raw converter.RawValue) (gpumux.MapInput, *Carry, error) {
	if workflow.GetInfo(ctx).ParentWorkflowExecution == nil {
		return gpumux.MapInput{}, nil, fmt.Errorf("%s is a part of a map; start %s", SegmentWorkflow, gpumux.MapWorkflow)
	}
	return handoff(raw)
}

func handoff(raw converter.RawValue) (gpumux.MapInput, *Carry, error) {
	var c Handoff
	err := DecodePayload(raw, &c)
	return gpumux.MapInput(c.Input), c.Carry, err
}
