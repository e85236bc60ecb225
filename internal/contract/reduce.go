package contract

import (
	"encoding/json"

	"github.com/gpumux/gpumux"
)

type ReduceInput struct {
	Map    string `json:"map"`
	Reduce string `json:"reduce"`
	// Edition is the edition of the task Reduce; a worker with another refuses.
	// gpumux.AnyEdition: whatever the worker has.
	Edition string `json:"edition,omitempty"`
	// Timeout, Attempts and Arg are the map's, for each pair that the task combines.
	Timeout  gpumux.Duration `json:"timeout,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	Arg      json.RawMessage `json:"arg,omitempty"`
	ArgFile  string          `json:"argFile,omitempty"`
	// Output is the results file. A small map has none, and gives its Results here.
	Output  string          `json:"output,omitempty"`
	Results []gpumux.Result `json:"results,omitempty"`
	// Key is where a value goes that is too large for the history.
	Key string `json:"key,omitempty"`
}

// Reduced is the result of Reduce: the value, or the URL where it lies.
type Reduced struct {
	Value json.RawMessage `json:"value,omitempty"`
	URL   string          `json:"url,omitempty"`
}
