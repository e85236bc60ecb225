package names

import (
	"fmt"
	"path"
	"strings"
)

// Max is the most bytes of a name.
const Max = 1000

// ResultsScheme stands before a results file whose values are the items, FailedScheme
// before one whose failed items are.
const (
	ResultsScheme = "results:"
	FailedScheme  = "failed:"
)

// ArraysHead begins an argument with arrays in it, which no JSON begins with.
const ArraysHead = "\x93gpumux 1\n"

// CutResults returns the results file that a source of gpumux.ValuesOf or
// gpumux.FailedOf names, and which. Any other source it returns as it is.
func CutResults(source string) (output string, results, failed bool) {
	if output, failed = strings.CutPrefix(source, FailedScheme); failed {
		return output, true, true
	}
	output, results = strings.CutPrefix(source, ResultsScheme)
	return output, results, false
}

// Table reports whether a source is by its name a Parquet file of rows.
func Table(source string) bool { return strings.EqualFold(path.Ext(fileOf(source)), ".parquet") }

// fileOf is the name of the file of items, or "" of results.
func fileOf(source string) string {
	name, results, _ := CutResults(source)
	if strings.Contains(name, "://") {
		name, _, _ = strings.Cut(name, "?")
	}
	if results {
		return ""
	}
	return name
}

// Columns returns what is wrong with the columns to read of a source, or nil; none are
// all. The error continues a sentence that begins with the word columns.
func Columns(source string, columns []string) error {
	if len(columns) > 0 && !Table(source) {
		return fmt.Errorf("go with Parquet files, and %.200q is none by its name", source)
	}
	seen := map[string]bool{}
	for _, name := range columns {
		switch {
		case len(name) > Max:
			return fmt.Errorf("have a name of %d bytes, more than %d", len(name), Max)
		case seen[name]:
			return fmt.Errorf("have %q twice", name)
		}
		seen[name] = true
	}
	return nil
}
