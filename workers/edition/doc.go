// Package edition tells versions of a task's code apart: an edition is a short hash of the files that a task is written in.
//
// It owns what counts as a task's code: its file and the modules beside it that it imports, the files that a command names, a
// program's own binary. It is the same on every machine that has the same code, wherever the files lie. It never runs anything, and
// what it has read once it reads again only when the file has changed. Nothing here runs by itself.
package edition
