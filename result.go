package gpumux

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"time"

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

// Resident names a resident: a value that a task keeps in the process of a lease. In an
// item of a later call on the lease, the task gets the value in its place.
type Resident struct {
	Host string `json:"host,omitempty"`
	// Slot is pool/number, Process the process on Host, Task the task that kept the value.
	Device  string `json:"device,omitempty"`
	Slot    string `json:"slot,omitempty"`
	Lease   string `json:"lease,omitempty"`
	Process string `json:"process"`
	Task    string `json:"task,omitempty"`
	// Key is the resident's name in the process.
	Key string `json:"key"`
	// Place is the framework's name of the device in the process, such as "cuda:1", if it
	// has one.
	Place string `json:"place,omitempty"`
	// Type and Shape are an array's, Bytes those of all arrays in the value.
	Type  string  `json:"type,omitempty"`
	Shape []int64 `json:"shape,omitempty"`
	Bytes int64   `json:"bytes"`
	// To is the place where the next call needs the value; see On.
	To string `json:"to,omitempty"`
}

// On is the handle for a call that needs the value on another device of its process, such
// as "cuda:1". The value moves there and stays.
func (h Resident) On(place string) Resident {
	h.To = place
	return h
}

// String names the resident for people.
func (h Resident) String() string {
	shape := ""
	if h.Shape != nil {
		shape = fmt.Sprint(h.Shape)
	}
	return fmt.Sprintf("%q (%s%s, %s) in process %s on %s of %s", h.Key, h.Type, shape, Size(h.Bytes), h.Process, h.Device, h.Host)
}

// handleFields is a Resident without its methods.
type handleFields Resident

// wrapped is a Resident in JSON.
type wrapped struct {
	Handle *handleFields `json:"gpumux.handle"`
}

// MarshalJSON writes what a task process takes for a handle.
func (h Resident) MarshalJSON() ([]byte, error) {
	return json.Marshal(wrapped{(*handleFields)(&h)})
}

// UnmarshalJSON reads what a task process wrote. Anything else is an error.
func (h *Resident) UnmarshalJSON(data []byte) error {
	var w wrapped
	if err := json.Unmarshal(data, &w); err != nil || w.Handle == nil || w.Handle.Key == "" {
		return fmt.Errorf("%.200s is no handle; a task that returns gpumux.keep(value) gives one", data)
	}
	*h = Resident(*w.Handle)
	return nil
}

// Seat says where a lease has its slot.
type Seat struct {
	Worker string `json:"worker"`
	Host   string `json:"host"`
	Slot   string `json:"slot"`
	Device string `json:"device"`
	// Memory is the slot's budget; 0 means none.
	Memory Size      `json:"memory,omitempty"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	// Calls is how many have ended, Task the one that runs now.
	Calls int    `json:"calls"`
	Task  string `json:"task,omitempty"`
	// Residents is how many values its process keeps, ResidentBytes the bytes of their
	// arrays.
	Residents     int   `json:"residents,omitempty"`
	ResidentBytes int64 `json:"residentBytes,omitempty"`
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
