// Package contract has the types that workflows, activities and clients exchange: chunks,
// pieces of work, parts, merges and reduces.
//
// It owns the inputs and results of the activities, the state that one run of a map hands
// to the next, their names, and the rules for valid ones. It never does input or output,
// and imports only the root package, internal/names and internal/text. It holds no state
// and so never has to stop.
package contract
