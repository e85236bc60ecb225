// Package rruntime is the R side of a task process, embedded.
//
// It owns the R files and puts them on disk with Install. It never starts R; package slot does. The files need R 4.0 or newer, cat and
// R's package jsonlite. Nothing here runs on after Install, so nothing has to stop.
package rruntime
