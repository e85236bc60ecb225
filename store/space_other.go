//go:build !linux && !darwin

package store

// freeSpace is unknown here.
var freeSpace = func(string) (bytes int64, known bool) { return 0, false }
