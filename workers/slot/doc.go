// Package slot runs the items of one call at a time in a task process of its own.
//
// It owns which process a call gets, how items go there and results come back, the slot's
// state, the limits on an item's time, and whose fault a death is. It never knows
// Temporal, the store or other slots. Stop ends the process, waits until nothing of it is
// left, and refuses further calls.
//
// Fresh mode is persistent mode with a limit of one item per process.
package slot
