// Package config turns a worker's file into pools on devices and tasks by name, with every mistake at once.
//
// It owns the file's format and defaults, what fits on which device, and the catalog: what a map asks for is only ever looked up
// there, so no input makes a worker run what its operator did not name. It starts nothing but an interpreter that reads modules
// without running them, and writes nothing. Nothing here runs by itself.
package config
