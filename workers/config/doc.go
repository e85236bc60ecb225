// Package config turns a worker's file into pools on devices and tasks by name, with every mistake at once.
//
// It owns the file's format and defaults, what fits on which device, and the catalog of tasks. It writes nothing and starts only an
// interpreter that reads modules without running them. Nothing here runs by itself.
package config
