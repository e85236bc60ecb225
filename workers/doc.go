// Package workers is for operators: it turns a worker's file into devices, slots, activities and Temporal workers.
//
// It owns which slot a call gets, when Temporal is asked for work, and the start and end of the whole worker. It alone wires the
// parts. It never runs a task itself, never reads items or results, and never runs what its file does not name. A Worker stops when
// Stop is called: it takes no new work, hands back what still runs, ends every task process and waits until nothing is left, or for a
// while if something hangs.
package workers
