// Package pool decides which slot a call gets.
//
// It owns the handles of one pool's slots: which calls hold one, which wait, which devices are cordoned, which device a call has whole.
// It never decides what Temporal is asked for nor how many slots there are. A Pool stops when Stop returns, with its slots.
package pool
