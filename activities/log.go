package activities

import (
	"go.temporal.io/sdk/log"

	"github.com/gpumux/gpumux"
)

// maxLogged is how many failed items of a chunk the log has.
const maxLogged = 20

// faultLog logs the faults of a chunk of a map.
type faultLog struct {
	log.Logger
	of string
	// logged counts the failed items that the log has.
	logged int
}

// item logs that an item failed. An item that is tried again later has not yet.
func (l *faultLog) item(result gpumux.Result, later bool) {
	switch {
	case result.Fault == nil || !later && l.logged >= maxLogged:
		return
	case later:
		l.Info("item raised; it is tried again after a pause", l.fields(result.Fault, result.Index)...)
		return
	}
	message := "item failed"
	if l.logged++; l.logged == maxLogged {
		message += "; of this chunk no more are told here, the results have them"
	}
	l.Warn(message, l.fields(result.Fault, result.Index)...)
}

// fields are the fields of a log line about a fault, of an item where its index is known.
func (l *faultLog) fields(f *gpumux.Fault, index int64) []any {
	k := []any{"map", l.of}
	if index >= 0 {
		k = append(k, "index", index, "item", f.Item)
	}
	k = append(k, "kind", f.Kind, "slot", f.Slot, "device", f.Device, "pid", f.PID, "fault", f.Error())
	if f.Budget > 0 {
		k = append(k, "budget", f.Budget)
	}
	return k
}
