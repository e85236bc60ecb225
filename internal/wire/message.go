package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
)

const (
	// Version is the version of the protocol, the same for both sides.
	Version = 1
	// MaxFrame is the most bytes that one frame may hold, without its length.
	MaxFrame = 1 << 30
)

// Message is one of Hello, Run, Next, Cancel and Stop (from the worker), or one of
// the others (from the task process). docs/wire.md says what each field means.
type Message interface{ kind() string }

// Hello is the worker's first message: which task, and the slot it runs in.
type Hello struct {
	Version   int         `json:"version"`
	Task      string      `json:"task"`
	Target    string      `json:"target"`
	Dir       string      `json:"dir"`
	OwnModule bool        `json:"own,omitempty"`
	Slot      string      `json:"slot"`
	Device    string      `json:"device"`
	Memory    int64       `json:"memory"`
	Mode      gpumux.Mode `json:"mode"`
	Board     int64       `json:"board,omitempty"`
	Room      int64       `json:"room,omitempty"`
}

// Run asks for items. The process answers each before it starts the next, unless its
// Ready has Concurrent, and waits for Next after a Fault. Runs are numbered from 1.
type Run struct {
	Run      int64 `json:"run"`
	Attempts int   `json:"attempts"`
	// RetryOn names the exceptions that Attempts is for. Default: all.
	RetryOn []string `json:"retryOn,omitempty"`
	// Timeout of each in seconds, where a process runs many at the same time; 0: none.
	Timeout float64           `json:"timeout,omitzero"`
	Items   []json.RawMessage `json:"items,omitzero"`
	// Kinds has one entry per item; nil: all are JSON. They need a Ready with Kinds.
	Kinds  []Kind `json:"kinds,omitempty"`
	Folder string `json:"folder,omitempty"`
	// Sizes has the size of each of Items, in a header only.
	Sizes []int `json:"sizes,omitzero"`
}

// Next lets the process go on after a Fault, if it is not ended instead, and after
// Results and Posted that wait, when the board is read.
type Next struct{}

// Cancel asks a process whose Ready has Concurrent to end the items of some runs that it
// has not answered.
type Cancel struct {
	Runs []int64 `json:"runs"`
}

// Stop asks the process to finish and exit 0. The end of the stream means the same.
type Stop struct{}

type ProcessHello struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	Runtime string `json:"runtime"`
}

// Ready says that the task is loaded, and how many items it takes in one call, or runs at
// the same time.
type Ready struct {
	Batch      int `json:"batch"`
	Concurrent int `json:"concurrent,omitempty"`
	// Kinds says that it takes items of the kinds Array and Mixed.
	Kinds bool `json:"kinds,omitempty"`
}

// Results are the values of consecutive items of a run. Each field but N has one entry
// per value, or belongs to all of them; nil Attempts and Kinds are 1 and JSON.
type Results struct {
	Run        int64             `json:"run"`
	N          int               `json:"n"`
	Values     []json.RawMessage `json:"values,omitzero"`
	Kinds      []Kind            `json:"kinds,omitempty"`
	Busy       []float64         `json:"busy"`
	Attempts   []int             `json:"attempts,omitempty"`
	Out        int64             `json:"out,omitempty"`
	Peak       int64             `json:"peak,omitempty"`
	Board      uint64            `json:"board,omitempty"`
	Wait       bool              `json:"wait,omitempty"`
	Allocators *Allocators       `json:"allocators,omitempty"`
	Files      []string          `json:"files,omitempty"`
	// Sizes has the size of each of Values, in a header only.
	Sizes []int `json:"sizes,omitzero"`
}

// Records are the results one by one. They ended together.
func (r *Results) Records() []Record {
	list := make([]Record, len(r.Values))
	for i, value := range r.Values {
		list[i] = Record{Run: r.Run, N: r.N + i, Value: value, Busy: r.Busy[i], Out: r.Out, Peak: r.Peak}
		if len(r.Kinds) > 0 {
			list[i].Kind = r.Kinds[i]
		}
	}
	return list
}

// Allocators is the memory of frameworks on the slot's devices, in bytes.
type Allocators struct {
	Live     int64 `json:"live"`
	Reserved int64 `json:"reserved"`
}

// Posted says that there are results on the board.
type Posted struct {
	Board      uint64      `json:"board"`
	Wait       bool        `json:"wait,omitempty"`
	Allocators *Allocators `json:"allocators,omitempty"`
}

// Fault says that an item raised or, with Run 0, that the task does not load, or raised
// when its process ended.
type Fault struct {
	Run        int64       `json:"run,omitempty"`
	N          int         `json:"n,omitempty"`
	Attempts   int         `json:"attempts,omitempty"`
	Final      bool        `json:"final,omitempty"`
	Late       bool        `json:"late,omitempty"`
	Busy       float64     `json:"busy,omitempty"`
	Out        int64       `json:"out,omitempty"`
	Peak       int64       `json:"peak,omitempty"`
	Board      uint64      `json:"board,omitempty"`
	Raised     Raised      `json:"fault"`
	Allocators *Allocators `json:"allocators,omitempty"`
}

// Raised is an exception, not yet classified. Its Chain led to it, nearest first.
type Raised struct {
	Class     string  `json:"class"`
	Message   string  `json:"message"`
	Traceback string  `json:"traceback,omitempty"`
	Chain     []Cause `json:"chain,omitempty"`
	Code      int     `json:"code,omitempty"`
}

type Cause struct {
	Class   string `json:"class"`
	Message string `json:"message"`
}

// Canceled answers a Cancel: no item of its runs is under way any more.
type Canceled struct {
	Runs  []int64 `json:"runs"`
	Board uint64  `json:"board,omitempty"`
}

// ProgressReport is the task's own report on an item that runs, or of run 0 on itself.
type ProgressReport struct {
	Run   int64           `json:"run"`
	N     int             `json:"n"`
	Value json.RawMessage `json:"value"`
	Board uint64          `json:"board,omitempty"`
}

// Cap says whether a framework's own limit holds when it begins to use the device.
type Cap struct {
	Framework string `json:"framework"`
	Error     string `json:"error,omitempty"`
}

func (Hello) kind() string          { return "hello" }
func (Run) kind() string            { return "run" }
func (Next) kind() string           { return "next" }
func (Cancel) kind() string         { return "cancel" }
func (Stop) kind() string           { return "stop" }
func (ProcessHello) kind() string   { return "hello" }
func (Ready) kind() string          { return "ready" }
func (Results) kind() string        { return "results" }
func (Posted) kind() string         { return "posted" }
func (Fault) kind() string          { return "fault" }
func (Canceled) kind() string       { return "canceled" }
func (ProgressReport) kind() string { return "progress" }
func (Cap) kind() string            { return "cap" }

// ProtocolError says how the other side broke the protocol. The stream is lost.
type ProtocolError struct {
	Problem string
	// Err is the cause where there is one: io.ErrUnexpectedEOF when a frame was cut short.
	Err error
}

func (e *ProtocolError) Error() string {
	if e.Err != nil {
		return "wire: " + e.Problem + ": " + e.Err.Error()
	}
	return "wire: " + e.Problem
}

func (e *ProtocolError) Unwrap() error { return e.Err }

func broken(format string, args ...any) error {
	return &ProtocolError{Problem: fmt.Sprintf(format, args...)}
}

// Kind is how a value travels.
type Kind int

const (
	// JSON values are their own text.
	JSON Kind = iota
	// Bytes become a string in base64.
	Bytes
	// Array is numbers behind their type and shape; they become nested lists.
	Array Kind = arrays.OneArray
	// Mixed is JSON with arrays in it.
	Mixed Kind = arrays.Mixed
)

const maxText = 1 << 30

// Text is the JSON of a value. A *ProtocolError says what is wrong with it.
func (k Kind) Text(value []byte) (json.RawMessage, error) {
	switch k {
	case JSON:
		return value, nil
	case Bytes:
		size := base64.StdEncoding.EncodedLen(len(value)) + 2
		if size > maxText {
			return nil, broken("a value of %d bytes would be %d as base64; at most %d are allowed", len(value), size, maxText)
		}
		b := append(make([]byte, 0, size), '"')
		b = base64.StdEncoding.AppendEncode(b, value)
		return append(b, '"'), nil
	case Array, Mixed:
		text, err := arrays.Text(append([]byte{byte(k)}, value...))
		if err != nil {
			return nil, broken("%v", err)
		}
		return text, nil
	}
	return nil, broken("a value is of kind %d; kinds are 0 to %d", int(k), int(Mixed))
}
