package gpumux

import (
	"encoding/json"
	"fmt"
)

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
