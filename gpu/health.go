package gpu

import (
	"cmp"
	"errors"
	"strings"
	"time"
)

// Action makes a device fit for work again.
type Action string

// The actions, from the mildest to the hardest.
const (
	ActionNone     Action = "none"      // go on
	ActionRestart  Action = "restart"   // end the processes that used the device
	ActionDrain    Action = "drain"     // place no new work, then ask Recovery
	ActionDrainP2P Action = "drain_p2p" // end the work that uses peer access on the device
	ActionReset    Action = "reset"     // reset the GPU once nothing runs on it
	ActionReboot   Action = "reboot"    // restart the host
)

// Cordon reports whether new work must stay off the device until it recovered.
func (a Action) Cordon() bool {
	return a != ActionNone && a != ActionRestart // an action of a newer driver is not healthy either
}

// Hint says to an operator what the action means.
func (a Action) Hint() string {
	switch a {
	case ActionNone:
		return "nothing to do"
	case ActionRestart:
		return "end the processes on the device; new ones can use it"
	case ActionDrainP2P:
		return "end the work that uses peer access on this GPU; the driver then recovers the link"
	case ActionReset:
		return "stop the worker, which holds the GPU open, and all other work on it; reset it: nvidia-smi --gpu-reset -i <uuid>; then start the worker again"
	case ActionReboot:
		return "restart the host; the GPU does not come back without it"
	default:
		return "place no new work on the GPU, and look at: nvidia-smi -q -i <uuid>"
	}
}

// HintFor is Hint with the UUID of a GPU in its commands.
func (a Action) HintFor(uuid string) string { return strings.ReplaceAll(a.Hint(), "<uuid>", uuid) }

// Health names the action that a device needs, and why.
type Health struct {
	Action Action `json:"action"`
	Reason Reason `json:"reason"`
}

// Reason is the source of a Health.
type Reason string

// The reasons.
const (
	ReasonRecovery Reason = "recovery_action" // the driver's own verdict
	ReasonRowRemap Reason = "row_remap"       // a row waits for a reset, and the driver has no verdict
	ReasonLost     Reason = "lost"            // ErrLost
	ReasonSilent   Reason = "silent"          // ErrSilent
)

// healthOf is the driver's verdict where it has one, else what the rows tell.
func healthOf(verdict Action, err error, rows *RemappedRows) *Health {
	switch {
	case err == nil:
		return &Health{verdict, ReasonRecovery}
	case errors.Is(err, errors.ErrUnsupported) && rows != nil && rows.Pending:
		return &Health{ActionReset, ReasonRowRemap}
	}
	return nil
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of Event.
const (
	EventXid      EventKind = "xid"      // the driver reported an Xid error
	EventECC      EventKind = "ecc"      // a double-bit memory error
	EventRecovery EventKind = "recovery" // the recovery action of the GPU changed; Action has the new one
	EventLost     EventKind = "lost"     // the GPU does not answer any more
	EventRestored EventKind = "restored" // a lost GPU answers again
)

// Event is one change in the health of a device.
type Event struct {
	// UUID is the MIG instance when the driver attributes the event to one, else the GPU.
	UUID string `json:"uuid"`
	// GPU is the UUID of the GPU.
	GPU  string    `json:"gpu"`
	Kind EventKind `json:"kind"`
	// Xid is the error number of an EventXid; 999 is the driver's word for an unknown one.
	Xid uint64 `json:"xid,omitempty"`
	// Action is the device's need, as far as the event alone can tell.
	Action Action    `json:"action"`
	Time   time.Time `json:"time"`
}

// xidActions has the errors with a fixed answer. After a drain Recovery has the verdict.
var xidActions = map[uint64]Action{
	43: ActionNone, 45: ActionNone, 63: ActionNone, 92: ActionNone,

	13: ActionRestart, 31: ActionRestart, 32: ActionRestart, 39: ActionRestart, 40: ActionRestart,
	41: ActionRestart, 68: ActionRestart, 69: ActionRestart, 80: ActionRestart, 94: ActionRestart,

	46: ActionReset, 62: ActionReset, 64: ActionReset, 95: ActionReset, 109: ActionReset,
	110: ActionReset, 119: ActionReset, 120: ActionReset, 136: ActionReset, 140: ActionReset,
	143: ActionReset, 155: ActionReset, 156: ActionReset, 158: ActionReset,

	79: ActionReboot,
}

// XidAction is the action in NVIDIA's Xid catalogue for an error; ActionDrain where it
// asks for a diagnosis, and for errors that it does not list.
func XidAction(xid uint64) Action { return cmp.Or(xidActions[xid], ActionDrain) }
