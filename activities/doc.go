// Package activities does the work of a map on a gpumux worker: it runs chunks of items,
// and keeps house around them.
//
// It owns the way of a chunk: which of its items still need to run, what a fault means
// for the item, the chunk and the map, and which errors Temporal retries. It never starts
// a process and knows slots only as a Runner. It decides nothing about the map as a
// whole; the workflow does. An activity stops when its context ends: the slot's process
// is gone then, and what had finished is stored.
package activities
