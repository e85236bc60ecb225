package activities

import "github.com/gpumux/gpumux"

// mostLogged is how many failed items of a chunk the log has.
const mostLogged = 20

// logFailure logs that an item failed.
func (a *attempt) logFailure(result gpumux.Result) {
	if result.Fault == nil {
		return
	}
	a.logged++
	switch {
	case a.logged < mostLogged:
		a.log.Warn("item failed", a.logFields(result.Fault, result.Index)...)
	case a.logged == mostLogged:
		a.log.Warn("item failed; of this chunk no more are told here, the results have them", a.logFields(result.Fault, result.Index)...)
	}
}

// logFields are the fields of a log line about a fault, of an item where its index is known.
func (a *attempt) logFields(f *gpumux.Fault, index int64) []any {
	k := []any{"map", a.chunk.Map}
	if index >= 0 {
		k = append(k, "index", index, "item", f.Item)
	}
	k = append(k, "kind", f.Kind, "slot", f.Slot, "device", f.Device, "pid", f.PID, "fault", f.Error())
	if f.Budget > 0 {
		k = append(k, "budget", f.Budget)
	}
	return k
}
