package gpumux

import "encoding/json"

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

// Weight is about how many bytes the result takes where it is stored.
func (r Result) Weight() int {
	n := 40 + len(r.Value) + len(r.Arrays) + len(r.Arrays)/128 + len(r.Printed) + len(r.Key) + len(r.Item)
	for _, name := range r.Files {
		n += 3 + len(name)
	}
	if r.Fault != nil {
		n += 300 + len(r.Fault.Item) + len(r.Fault.Message) + len(r.Fault.Traceback) + len(r.Fault.Tail)
	}
	return n
}
