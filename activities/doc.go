// Package activities is what a gpumux worker does for a map: run a chunk of items, and the light work around it.
//
// It owns the way of a chunk: which of its items still need to run, what a fault means for the item, the chunk and the map,
// when results are stored, and which errors Temporal retries. It never starts a process and knows slots only as a Runner; it
// decides nothing about the map as a whole, which is the workflow's. An activity stops when its context ends: the slot's
// process is then gone, and what had finished is stored.
//
// Files: chunk.go (RunChunk), telling.go (faults in the log), recorder.go (one way into the store for all chunks of a
// map), limit.go (how long a chunk may take), saving.go (results on their way into the store, and heartbeats meanwhile),
// ledger.go (what a chunk has finished and what its faults were), runner.go (what is wanted of slots), input.go (what
// inputs and heartbeats may be), edition.go (work for other code than this worker's), light.go (index, find, merge,
// describe), reduce.go (Reduce: the leaves and branches of a reduce), checkpoint.go (how far one has come), number.go
// (sum, mean, min, max and count), apperror.go (faults as Temporal's errors and back).
package activities
