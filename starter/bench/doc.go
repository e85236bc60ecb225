// Package bench measures what gpumux costs and gains on this machine, beside bare processes that run the same function.
//
// It owns the workloads and their Python file, the bare processes, the stages that measure them, what is made of the figures, and the
// report as a table, JSON and HTML. It never starts a Temporal server: the caller gives a client of one that no other gpumux worker
// serves. Run returns when everything it started has ended: bare processes, workers, maps, slots.
//
// # How it measures
//
// A stage is a workload with a number of clients under one way to share the device: so many slots, as many bare processes with the
// environment of a slot, and one bare process alone, which is the unshared device. They take turns: in a round each runs a piece of
// half a second, and every other round goes backwards, so that whatever else the machine does hits all alike. The first round only
// finds out how many items fill a piece.
//
// The throughput of a piece is that of its steady state, while all slots have work: from the first item's end in the last slot to
// begin until the last item's end in the first slot to be done. A piece of slots is a map of one chunk per slot. What the map takes
// before its first item and after its last one is told apart, as the fixed cost of a map.
//
// Shares are computed within a round. Rounds go on until the median share is known to 3 % with a confidence of 95 %, which the ranks of
// the sorted shares tell without knowing their distribution, or until the stage has had its time; the report says which. Advice
// follows only from intervals that lie apart.
package bench
