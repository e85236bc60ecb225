package gpumux

import "github.com/gpumux/gpumux/internal/names"

// ValuesOf is the source whose items are the values in a results file, such as
// Summary.Output. Items that failed are none of them. The results of a map over it have
// the keys that are in the file, unless the map has a Key of its own.
func ValuesOf(output string) string { return names.ResultsScheme + output }

// FailedOf is the source whose items are those that failed, by a results file: a list of
// dead letters. The map that wrote it had WithItem. Keys are kept as by ValuesOf.
func FailedOf(output string) string { return names.FailedScheme + output }
