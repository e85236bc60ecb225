// Package wire is the protocol between a worker and a task process; see docs/wire.md.
//
// It owns the messages, their frames, the board, and Serve, the main loop of a task
// process in Go. It never decodes an item, starts a process or judges a fault. A Conn
// stops at its first error.
package wire
