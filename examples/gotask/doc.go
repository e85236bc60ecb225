// Command gotask is a task process in Go: a worker starts it in a slot and sends it
// items.
//
// It owns the task primes. It never talks to Temporal and opens no port: the worker
// speaks with it over the wire (docs/wire.md). It ends when the worker says so or is
// gone.
package main
