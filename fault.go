package gpumux

import (
	"fmt"
	"strings"

	"github.com/gpumux/gpumux/internal/text"
)

// FaultKind classifies a fault.
type FaultKind string

const (
	// FaultDeviceOOM: the framework or CUDA said that device memory is exhausted.
	FaultDeviceOOM FaultKind = "device_oom"
	// FaultBudget: the task process and its children held more memory than their slot's
	// budget.
	FaultBudget FaultKind = "budget"
	// FaultHostOOM: the kernel or the language runtime ran out of host memory.
	FaultHostOOM FaultKind = "host_oom"
	// FaultCrash: the task process ended, or broke the protocol, while it ran an item.
	FaultCrash FaultKind = "crash"
	// FaultTimeout: an item took longer than it may.
	FaultTimeout FaultKind = "timeout"
	// FaultDeviceLost: the device failed or is gone.
	FaultDeviceLost FaultKind = "device_lost"
	// FaultTaskError: the user's code raised.
	FaultTaskError FaultKind = "task_error"
	// FaultBadInput: the call can never work as it was given, such as with an unknown task.
	FaultBadInput FaultKind = "bad_input"
	// FaultCanceled: the map was cancelled while the item ran.
	FaultCanceled FaultKind = "canceled"
)

// Kinds are all kinds of faults.
func Kinds() []FaultKind {
	return []FaultKind{FaultDeviceOOM, FaultBudget, FaultHostOOM, FaultCrash, FaultTimeout, FaultDeviceLost, FaultTaskError, FaultBadInput, FaultCanceled}
}

// Memory reports whether the fault is about memory, so that a larger budget can help.
func (k FaultKind) Memory() bool { return k == FaultDeviceOOM || k == FaultBudget || k == FaultHostOOM }

// Deadly reports whether the task process did not outlive the fault, but for a timeout of
// one of many items at the same time.
func (k FaultKind) Deadly() bool {
	return k.Memory() || k == FaultCrash || k == FaultTimeout || k == FaultDeviceLost
}

// Fault is a classified failure. Sizes are in bytes; 0 means unknown.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// Item is the beginning of the item that failed, Index its position in the map. The
	// fault of a Result has no Index.
	Item  string `json:"item,omitempty"`
	Index *int64 `json:"index,omitempty"`
	// Op is the step that failed: "start" of a task process, "run" of an item, "read" of a
	// stream's line.
	Op string `json:"op,omitempty"`
	// Message is one line, in the framework's own words where there are any.
	Message string `json:"message"`
	// Class is the exception's class, such as ValueError or torch.OutOfMemoryError.
	Class string `json:"class,omitempty"`
	Task  string `json:"task,omitempty"`
	// Slot is pool/number, Device the device's UUID, Host the worker's host name.
	Slot   string `json:"slot,omitempty"`
	Device string `json:"device,omitempty"`
	Host   string `json:"host,omitempty"`
	PID    int    `json:"pid,omitempty"`
	// Exit is how the process ended, such as "exit status 3" or "signal SIGSEGV".
	Exit      string `json:"exit,omitempty"`
	Budget    int64  `json:"budget,omitempty"`
	Peak      int64  `json:"peak,omitempty"`
	Requested int64  `json:"requested,omitempty"`
	Total     int64  `json:"total,omitempty"`
	Free      int64  `json:"free,omitempty"`
	// Attempts is how often the item was tried. Final says that its exception is none of
	// those that are tried again.
	Attempts  int    `json:"attempts,omitempty"`
	Final     bool   `json:"final,omitempty"`
	Traceback string `json:"traceback,omitempty"`
	// Tail is the end of the process's output.
	Tail string `json:"tail,omitempty"`
	Hint string `json:"hint,omitempty"`
	// Edition is the edition of the worker's code, where it is not the map's.
	Edition string `json:"edition,omitempty"`
	// Batch is how many items may have been under way in one micro-batch, or of the same
	// chunk at the same time; 0: single items.
	Batch int `json:"batch,omitempty"`
	// Alone says that no other item had run in the process that died.
	Alone bool `json:"alone,omitempty"`
	// Blameless says that the item is not to blame, so that another try costs no attempt.
	Blameless bool `json:"blameless,omitempty"`
	// Concurrent says that many items ran at the same time, each for itself.
	Concurrent bool `json:"-"`
	// Again says that the task's last start in the slot was over the budget, too.
	Again bool `json:"-"`
	// Repeated says that another call has the same death, where it counts.
	Repeated bool `json:"-"`
	// Suspect says that the device may be to blame, as far as the last words tell.
	Suspect bool `json:"-"`
	// Wide says that the fault reached every process of the same MPS server.
	Wide bool `json:"-"`
}

// Which says which item failed, such as "item 7 = {…}", if the fault knows.
func (f *Fault) Which() string {
	switch {
	case f.Index == nil:
		return ""
	case f.Item == "":
		return fmt.Sprintf("item %d", *f.Index)
	}
	return fmt.Sprintf("item %d = %s", *f.Index, f.Item)
}

// Error is one line: kind, where, message, sizes, next step.
func (f *Fault) Error() string {
	where := string(f.Kind) + text.When(f.Slot != "", " in slot %s", f.Slot) + text.When(f.Device != "", " on %s", f.Device)
	exit := text.When(f.Exit != "" && !strings.Contains(f.Message, f.Exit), " (%s)", f.Exit)
	sizes := text.When(f.Budget > 0, "; budget %s", Size(f.Budget)) + text.When(f.Peak > 0, ", peak %s", Size(f.Peak)) +
		text.When(f.Requested > 0, ", asked for %s", Size(f.Requested))
	return text.When(where != "", "%s: ", where) + text.When(f.Class != "" && f.Class != f.Message, "%s: ", f.Class) + f.Message + exit + sizes +
		text.When(f.Hint != "", "; %s", f.Hint)
}
