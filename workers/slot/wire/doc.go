// Package wire is the protocol between a worker and a task process, version 1. docs/wire.md is its specification.
//
// It owns the messages, the frames that carry them over one stream socket, the board in shared memory, and Serve, the main
// loop of a task process written in Go. It never decodes an item or a JSON value, starts no process and judges no fault: it carries
// raw JSON and what was raised. A Conn stops at the first error: no frame can be found again in a stream that lost its step.
package wire
