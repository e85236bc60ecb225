// Package workers turns a worker's file into devices, slots and Temporal workers.
//
// It owns which slot a call gets, when Temporal is asked for work, and the start and end
// of the whole worker. It never runs a task itself, reads no items or results, and runs
// nothing that its file does not name. A Worker stops when Stop is called: it takes no
// new work, hands back what still runs, and ends every task process.
package workers
