package slot

import (
	"go.uber.org/zap"
)

// key is the constant name of a log field; every line of a slot carries slot and device, and pid where there is a process.
type key string

const (
	logSlot   key = "slot"
	logDevice key = "device"
	logPID    key = "pid"
	logTask   key = "task"
	logFrom   key = "from"
	logTo     key = "to"
	logWhy    key = "why"
	logFault  key = "fault"
	logReason key = "reason"
	logMemory key = "memory"
	logTook   key = "took"
	logAdvice key = "advice"
)

func (k key) text(value string) zap.Field { return zap.String(string(k), value) }
func (k key) int(value int) zap.Field     { return zap.Int(string(k), value) }
