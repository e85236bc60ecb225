// Package wire is the protocol between a worker and a task process, version 1. docs/wire.md is its specification.
//
// It owns the messages, the frames that carry them over one stream socket, the board in shared memory, and Serve, the main loop of a
// task process written in Go. It never decodes an item, starts a process or judges a fault. A Conn stops at its first error.
package wire
