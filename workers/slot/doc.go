// Package slot is a slot on a device: it runs the items of one call at a time in a task process of its own.
//
// It owns which process a call gets and the conversation with it, the templates that processes are forked from, the state of the
// slot, the limits on an item's time, and the evidence of every death. It never knows Temporal, the store or how many slots there are, and one
// slot's failure touches no other. A slot stops when Stop is called: it ends its process, waits until nothing of it is left,
// and refuses further calls.
//
// Fresh mode is persistent mode with a limit of one item per process; both run through the same code. Such a process is forked
// from a template, which has imported the task and runs nothing itself, where what the import left bears a fork.
package slot
