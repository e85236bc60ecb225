package gpumux

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"

	"github.com/gpumux/gpumux/internal/text"
)

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

// Float is a number in an item or a value that may be NaN or infinite, which JSON has no
// number for. Tasks in Python and R take and return such numbers as they are.
type Float float64

// MarshalJSON writes NaN and the infinities as docs/wire.md says.
func (f Float) MarshalJSON() ([]byte, error) {
	switch x := float64(f); {
	case math.IsNaN(x):
		return []byte(text.NaN), nil
	case math.IsInf(x, 1):
		return []byte(text.Infinity), nil
	case math.IsInf(x, -1):
		return []byte(text.MinusInfinity), nil
	default:
		return json.Marshal(x)
	}
}

// UnmarshalJSON takes a number, or the name of one that JSON lacks.
func (f *Float) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		return json.Unmarshal(data, (*float64)(f))
	}
	var name string
	if err := json.Unmarshal(data, &name); err != nil {
		return err
	}
	switch name {
	case "NaN":
		*f = Float(math.NaN())
	case "Infinity":
		*f = Float(math.Inf(1))
	case "-Infinity":
		*f = Float(math.Inf(-1))
	default:
		return fmt.Errorf("the text %.40q is no number", name)
	}
	return nil
}
