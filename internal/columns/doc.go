// Package columns writes results as Parquet files, and reads items from them.
//
// It owns what becomes of values there: their types, their columns, and what stands in
// the place of a failed item. It opens no file itself, and prints nothing. A reader ends
// at the end of its file or with its context.
package columns

import (
	"path/filepath"
	"strings"
)

// Parquet is the ending of files that hold columns.
const Parquet = ".parquet"

// Holds reports whether a file of this name holds columns.
func Holds(name string) bool { return strings.ToLower(filepath.Ext(name)) == Parquet }
