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

// CutValues returns the results file that a source of gpumux.ValuesOf names. Any other
// source it returns as it is.
func CutValues(source string) (output string, values bool) {
	return strings.CutPrefix(source, ResultsScheme)
}

// Table reports whether a source, a file or URL by its name, is a Parquet, an Arrow or a
// .npy file, whose rows are the items.
func Table(source string) bool {
	name, values := CutValues(source)
	if strings.Contains(name, "://") {
		name, _, _ = strings.Cut(name, "?")
	}
	return !values && slices.Contains([]string{".parquet", ".arrow", ".feather", ".npy"}, strings.ToLower(path.Ext(name)))
}

// Columns returns what is wrong with the columns that the items of a source shall have,
// or nil. Without columns they have all. The error continues a sentence that begins with
// the word columns.
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
