package names

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Max is the most bytes of a name, MaxEntries the most entries of a list in an input.
const (
	Max        = 1000
	MaxEntries = 1 << 16
)

// ResultsScheme stands before a results file whose values are the items.
const ResultsScheme = "results:"

// CutValues is the results file of a source that ValuesOf made. Of any other it is the
// source itself.
func CutValues(source string) (output string, values bool) {
	return strings.CutPrefix(source, ResultsScheme)
}

// Table reports whether a source, a file or URL by its name, is a Parquet or an Arrow
// file, whose rows are the items.
func Table(source string) bool {
	name, values := CutValues(source)
	if strings.Contains(name, "://") {
		name, _, _ = strings.Cut(name, "?")
	}
	return !values && slices.Contains([]string{".parquet", ".arrow", ".feather"}, strings.ToLower(path.Ext(name)))
}

// Columns returns what is wrong with the columns that the items of a source are to have,
// or nil. The error goes on from the word columns. Of none they have all.
func Columns(source string, columns []string) error {
	if len(columns) > 0 && !Table(source) {
		return fmt.Errorf("go with Parquet and Arrow files, and %.200q is none by its name", source)
	}
	seen := map[string]bool{}
	for _, name := range columns {
		switch {
		case name == "":
			return errors.New("have an empty name")
		case len(name) > Max:
			return fmt.Errorf("have a name of %d bytes, more than %d", len(name), Max)
		case seen[name]:
			return fmt.Errorf("have %q twice", name)
		}
		seen[name] = true
	}
	return nil
}
