package wire

import (
	"encoding/json"
	"fmt"

	"github.com/gpumux/gpumux"
)

const (
	// Version is the version of the protocol, the same for both sides.
	Version = 1
	// MaxFrame is the most bytes that one frame may hold, without its length.
	MaxFrame = 1 << 30
	// Descriptor is the number under which a task process inherits its end of the socket.
	Descriptor = 3
)

// Message is one of Hello, Run, Next, Trim and Stop (from the worker), or one of the
// others (from the task process).
type Message interface{ kind() string }

// Hello is the worker's first message: which task, and the slot it runs in.
type Hello struct {
	Version int `json:"version"`
	// Task is the task's name, Target its code relative to Dir, as embed.py:embed.
	Task   string `json:"task"`
	Target string `json:"target"`
	Dir    string `json:"dir"`
	// Own asks the process to refuse a function that the target's module has from elsewhere.
	Own bool `json:"own,omitempty"`
	// Slot is pool/number, Device the device's UUID or "CPU".
	Slot   string `json:"slot"`
	Device string `json:"device"`
	// Memory is the slot's budget in bytes; 0 means none.
	Memory int64       `json:"memory"`
	Mode   gpumux.Mode `json:"mode"`
	// Board is the size of the board that the process inherited; 0: none.
	Board int64 `json:"board,omitempty"`
	// Room is how many bytes of each device a framework may allocate; 0: no limit.
	Room int64 `json:"room,omitempty"`
	// Lease is the process's lease, whose calls may keep residents; Host is for handles.
	// Rebuilt: a handle of an earlier process stands for the resident with its key.
	Lease   string `json:"lease,omitempty"`
	Host    string `json:"host,omitempty"`
	Rebuilt bool   `json:"rebuilt,omitempty"`
}

// Run asks for items, in order. The process answers each with a Results or a Fault before
// it starts the next. After a Fault it waits for Next.
type Run struct {
	// Run numbers the runs of one process from 1.
	Run int64 `json:"run"`
	// Attempts is how often an item that raises is tried; 0 means once.
	Attempts int               `json:"attempts"`
	Items    []json.RawMessage `json:"items"`
	// Target is the function to call in a lease. Empty: that of Hello.
	Target string `json:"target,omitempty"`
	// Task is the name of the task that Target belongs to.
	Task string `json:"task,omitempty"`
	// Folder is where items may leave files, in folders <run>-<n>. Empty: nowhere.
	Folder string `json:"folder,omitempty"`
}

// Next lets the process go on after a Fault, if it is not ended instead, and after
// Results and Posted that wait, when the board is read.
type Next struct{}

// Trim asks the process to free memory that it does not need, once it has answered all
// its items. Only a process whose Ready says so understands it.
type Trim struct{}

// Stop asks the process to finish and exit 0. The end of the stream means the same.
type Stop struct{}

// ProcessHello is the process's first message.
type ProcessHello struct {
	Version int `json:"version"`
	PID     int `json:"pid"`
	// Runtime is for people, such as "python 3.11.7".
	Runtime string `json:"runtime"`
}

// Ready says that the task is loaded.
type Ready struct {
	// Batch is the most items of one call of the task; 0: single items.
	Batch int `json:"batch"`
	// Trim says that the process understands Trim.
	Trim bool `json:"trim,omitempty"`
}

// Results are the values of consecutive items of a run.
type Results struct {
	Run int64 `json:"run"`
	// N is the position in the run of the first value, from 0.
	N int `json:"n"`
	// Values are JSON, or what their Kinds make of them; nil Kinds mean JSON alone.
	Values []json.RawMessage `json:"values"`
	Kinds  []Kind            `json:"kinds,omitempty"`
	// Busy is how many seconds each took; a micro-batch shares its time out evenly.
	Busy []float64 `json:"busy"`
	// Attempts is how often each was tried; nil means once each.
	Attempts []int `json:"attempts,omitempty"`
	// Out is the size of the file behind standard output; 0: nothing new was printed. What
	// lies before it belongs to these items.
	Out int64 `json:"out,omitempty"`
	// Peak is the most bytes needed since the last peak; 0: not measured. On the CPU it is
	// the process's resident memory, on a device what was live in allocators.
	Peak int64 `json:"peak,omitempty"`
	// Board is the end of the board when this was sent; what lies before comes first.
	Board uint64 `json:"board,omitempty"`
	// Wait asks for a Next.
	Wait bool `json:"wait,omitempty"`
	// Allocators are measured with Peak; nil means that nothing new is told.
	Allocators *Allocators `json:"allocators,omitempty"`
	// Files are the names of those that the one item left in its folder.
	Files []string `json:"files,omitempty"`
}

// Records are the results one by one. They ended together.
func (r *Results) Records() []Record {
	list := make([]Record, len(r.Values))
	for i, value := range r.Values {
		list[i] = Record{Run: r.Run, N: r.N + i, Value: value, Busy: r.Busy[i], Out: r.Out, Peak: r.Peak}
		if r.Kinds != nil {
			list[i].Kind = r.Kinds[i]
		}
	}
	return list
}

// Allocators is what frameworks hold on the slot's devices, in bytes.
type Allocators struct {
	// Live is what values occupy, Reserved what is taken, Spare what a Trim frees.
	Live     int64 `json:"live"`
	Reserved int64 `json:"reserved"`
	Spare    int64 `json:"spare"`
}

// Posted says that there are results on the board.
type Posted struct {
	// Board, Wait and Allocators are as in Results.
	Board      uint64      `json:"board"`
	Wait       bool        `json:"wait,omitempty"`
	Allocators *Allocators `json:"allocators,omitempty"`
}

// Fault says that an item raised or, with Run 0, that the task does not load.
type Fault struct {
	Run int64 `json:"run,omitempty"`
	// N is the item's position in the run.
	N int `json:"n,omitempty"`
	// Attempts is how often the item was tried; 0 means once.
	Attempts int `json:"attempts,omitempty"`
	// Busy is how many seconds all attempts took.
	Busy float64 `json:"busy,omitempty"`
	// Out, Peak, Board and Allocators are as in Results.
	Out        int64       `json:"out,omitempty"`
	Peak       int64       `json:"peak,omitempty"`
	Board      uint64      `json:"board,omitempty"`
	Raised     Raised      `json:"fault"`
	Allocators *Allocators `json:"allocators,omitempty"`
}

// Raised is an exception, not yet classified.
type Raised struct {
	// Class has its module, as in torch.OutOfMemoryError.
	Class     string `json:"class"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
	// Chain are the exceptions that led to this one, nearest first.
	Chain []Cause `json:"chain,omitempty"`
	// Code is the device runtime's own number, such as CUDA's 2; 0 means none.
	Code int `json:"code,omitempty"`
}

// Cause is one exception of a chain.
type Cause struct {
	Class   string `json:"class"`
	Message string `json:"message"`
}

// ProgressReport is what the task says about the item that runs.
type ProgressReport struct {
	Run   int64           `json:"run"`
	N     int             `json:"n"`
	Value json.RawMessage `json:"value"`
	// Board is as in Results.
	Board uint64 `json:"board,omitempty"`
}

// Kept says how many residents the process has now, before the item's answer.
type Kept struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

// Trimmed answers a Trim.
type Trimmed struct {
	// Busy is how many seconds it took.
	Busy float64 `json:"busy"`
	// Allocators is what they hold afterwards; nil means that none has begun.
	Allocators *Allocators `json:"allocators,omitempty"`
}

// Cap says whether a framework's own limit holds when it begins to use the device.
type Cap struct {
	// Framework is torch, cupy, jax or tensorflow.
	Framework string `json:"framework"`
	// Error says why the limit does not hold. Empty: it was tried and holds.
	Error string `json:"error,omitempty"`
	// Reserved are the bytes that frameworks' allocators hold on all devices of the slot.
	Reserved int64 `json:"reserved,omitempty"`
	// Wait: the process waits for Next, so that its memory can be measured.
	Wait bool `json:"wait,omitempty"`
}

func (Hello) kind() string          { return "hello" }
func (Run) kind() string            { return "run" }
func (Next) kind() string           { return "next" }
func (Trim) kind() string           { return "trim" }
func (Stop) kind() string           { return "stop" }
func (ProcessHello) kind() string   { return "hello" }
func (Ready) kind() string          { return "ready" }
func (Results) kind() string        { return "results" }
func (Posted) kind() string         { return "posted" }
func (Fault) kind() string          { return "fault" }
func (ProgressReport) kind() string { return "progress" }
func (Kept) kind() string           { return "kept" }
func (Trimmed) kind() string        { return "trimmed" }
func (Cap) kind() string            { return "cap" }

// VersionError says that the two sides speak different versions.
type VersionError struct{ Ours, Theirs int }

// Error names both versions and what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("wire version %d here, %d on the other side; build the worker and the task process from the same release of gpumux",
		e.Ours, e.Theirs)
}

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
