// Package pyruntime is the Python side of a task process, embedded.
//
// It owns the Python files and puts them on disk with Install. It never starts Python; package slot does. The files need
// Python 3.9 or newer and nothing but its standard library. Nothing here runs on after Install, so nothing has to stop.
package pyruntime
