package workers

// The constant keys of log lines. A line about a slot carries slot and device, and pid where there is a process.
const (
	logSlot   = "slot"
	logSlots  = "slots"
	logDevice = "device"
	logPID    = "pid"
	logPool   = "pool"
	logTask   = "task"
	logKind   = "kind"
	logFault  = "fault"
	logItem   = "item"
	logQueue  = "queue"
	logWhy    = "why"
)
