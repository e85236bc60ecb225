// Package contract has the types that workflows, activities and clients exchange: chunks,
// pieces of work, parts and merges.
//
// It owns the inputs and results of the activities, the state that one run of a map hands
// to the next, their names, the rules for valid ones, and the way from a payload to one:
// anybody who may use the namespace can send any bytes, so nothing happens before the
// whole input was read and checked. It does no input or output, holds no state and so
// never has to stop.
package contract
