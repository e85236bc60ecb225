package activities

import (
	"slices"

	"github.com/gpumux/gpumux"
)

// spare counts a failure of the worker or its device, and reports whether the chunk is to be tried again for it.
func (l *ledger) spare() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memo.Spared++
	return l.memo.Spared < mostSpared
}

// suspect notes the device of a fault that may be the device's.
func (l *ledger) suspect(fault *gpumux.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fault.Suspect && !slices.Contains(l.memo.Avoid, fault.Device) {
		l.memo.Avoid = append(l.memo.Avoid, fault.Device)
	}
}

// avoid are the devices to avoid.
func (l *ledger) avoid() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.memo.Avoid)
}
