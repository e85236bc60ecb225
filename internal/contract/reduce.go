package contract

import (
	"encoding/json"
	"slices"

	"github.com/gpumux/gpumux"
)

// OwnReduce reports whether a reduce is computed by gpumux itself; any other name is a task that runs in slots.
func OwnReduce(name string) bool { return slices.Contains(gpumux.Reduces(), name) }

// ReduceInput is the input of the activity Reduce. Exactly one of Source, Results and Partials is given; with none it only
// checks that the reduce is known.
type ReduceInput struct {
	Contract Stamp  `json:"contract"`
	Map      string `json:"map"`
	Reduce   string `json:"reduce"`
	// Edition is that of the code of a reduce that is a task; a worker that has another refuses. Empty: any.
	Edition string `json:"edition,omitempty"`
	// Timeout, Attempts and Arg are the map's, for each pair that a task combines.
	Timeout  gpumux.Duration `json:"timeout,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	Arg      json.RawMessage `json:"arg,omitempty"`
	// Source is the results file with its index, of which Span is read.
	Source *gpumux.Source `json:"source,omitempty"`
	gpumux.Span
	// Results are those of a small map.
	Results List[gpumux.Result] `json:"results,omitempty"`
	// Partials are combined in their order.
	Partials List[Partial] `json:"partials,omitempty"`
	// Folder is where partials lie that are too large for the history.
	Folder string `json:"folder,omitempty"`
	// Final asks for the value itself instead of a partial.
	Final bool `json:"final,omitempty"`
}

// Partial is what a reduce has made of the items Start up to but not including End.
type Partial struct {
	gpumux.Span
	// Count is how many values are in it: items that succeeded.
	Count int64 `json:"count"`
	// Edition is the edition of the code of a task, in the answer to whether that is known.
	Edition string `json:"edition,omitempty"`
	// Value is the state of a reduce of gpumux's own, or the value of a task; or Key says where in the store it lies. Neither
	// is set when Count is 0.
	Value json.RawMessage `json:"value,omitempty"`
	Key   string          `json:"key,omitempty"`
}
