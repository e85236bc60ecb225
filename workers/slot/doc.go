// Package slot is a slot on a device: it runs the items of one call at a time in a task process of its own.
//
// It owns which process a call gets, how items go to it and results come back, the state of the slot, the limits on an item's time,
// and whose fault a death is. It never knows Temporal, the store or how many slots there are, and one slot's failure touches no
// other. A slot stops when Stop is called: it ends its process, waits until nothing of it is left, and refuses further calls.
//
// Fresh mode is persistent mode with a limit of one item per process; both run through the same code.
package slot
