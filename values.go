package gpumux

import "strings"

// resultsScheme stands before a results file whose values are the items.
const resultsScheme = "results:"

// ValuesOf is the source whose items are the values in a results file, such as Summary.Output. Items that failed are none of them. The
// results of a map over it have the keys that are in the file, unless the map has a Key of its own.
func ValuesOf(output string) string { return resultsScheme + output }

// CutValues is the results file of a source that ValuesOf made. Of any other it is the source itself.
func CutValues(source string) (output string, values bool) {
	return strings.CutPrefix(source, resultsScheme)
}
