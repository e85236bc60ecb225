package activities

import "github.com/gpumux/gpumux"

// mostTold is how many failed items of a chunk are told one by one.
const mostTold = 20

// tell says in the log that an item failed.
func (r *run) tell(result gpumux.Result) {
	if result.Fault == nil {
		return
	}
	r.told++
	switch {
	case r.told < mostTold:
		r.log.Warn("item failed", r.keys(result.Fault, result.Index)...)
	case r.told == mostTold:
		r.log.Warn("item failed; of this chunk no more are told here, the results have them", r.keys(result.Fault, result.Index)...)
	}
}

// keys are the fields of a log line about a fault, of an item where its index is known.
func (r *run) keys(f *gpumux.Fault, index int64) []any {
	k := []any{"map", r.chunk.Map}
	if index >= 0 {
		k = append(k, "index", index, "item", f.Item)
	}
	k = append(k, "kind", f.Kind, "slot", f.Slot, "device", f.Device, "pid", f.PID, "fault", f.Error())
	if f.Budget > 0 {
		k = append(k, "budget", f.Budget)
	}
	return k
}
