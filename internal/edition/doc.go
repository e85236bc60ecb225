// Package edition tells versions of a task's code apart: an edition is a short hash of
// the files that a task is written in.
//
// It owns what counts as a task's code: its file and the modules beside it that it
// imports, the files that a command names, a program's binary. The same code has the same
// edition on every machine and in every folder. It never runs code, and reads a file
// again only when it has changed. Nothing here runs by itself.
package edition
