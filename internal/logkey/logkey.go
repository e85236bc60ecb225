// Package logkey has the keys of log fields, so that a thing has the same name in every line. It owns nothing else.
package logkey

// A line about a slot carries slot and device, and pid where there is a process.
const (
	Slot   = "slot"
	Slots  = "slots"
	Device = "device"
	PID    = "pid"
	Pool   = "pool"
	Task   = "task"
	Kind   = "kind"
	Fault  = "fault"
	Item   = "item"
	Queue  = "queue"
	From   = "from"
	To     = "to"
	Why    = "why"
	Reason = "reason"
	Memory = "memory"
	Took   = "took"
	Advice = "advice"
	// Workflow is the ID of the workflow that has a lease.
	Workflow = "workflow"
)
