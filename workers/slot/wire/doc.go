// Package wire is the protocol between a worker and a task process, version 1. docs/wire.md is its specification.
//
// It owns the messages, the frames that carry them over one stream socket, the board in shared memory, and Serve, the main
// loop of a task process written in Go. It never decodes an item or a JSON value, starts no process and judges no fault: it carries
// raw JSON and what was raised. A Conn stops at the first error: no frame can be found again in a stream that lost its step.
//
// Files: message.go (what is said), conn.go (frames on a socket), header.go (messages as headers and back), pair.go (the
// socket), board.go (results in shared memory), value.go (values that are not JSON yet), check.go
// (values that are), serve.go (a task process in Go), handler.go
// (a Go function as a task), printed.go (where its output ends), peak.go (what its items held), raised.go (Go errors as they travel).
package wire
