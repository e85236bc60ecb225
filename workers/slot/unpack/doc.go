// Package unpack puts embedded files on disk, for programs that are not Go to run.
//
// It owns the folder of a set of files, whose name is a hash of them. It never starts what it writes. Nothing here runs on after Files,
// so nothing has to stop.
package unpack
