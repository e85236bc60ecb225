// Package recovery decides what follows when items of a chunk have not run to their end.
//
// It owns the table of rules, which docs/faults.md repeats, and what a chunk remembers of
// its faults from one attempt to the next. It never runs, waits or stores anything, and
// reads no clock, so nothing here stops.
package recovery
