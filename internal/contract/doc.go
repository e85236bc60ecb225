// Package contract is what workflows and activities say to each other, and to nobody else: chunks, pieces of work, parts, merges and
// reduces, as types.
//
// It owns the inputs and results of the activities, the state that one run of a map hands to the next, their names, and the rules that say
// whether they are valid. It never does input or output and needs nothing but the root package. It holds no state and so never has to stop.
package contract
