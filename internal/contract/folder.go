package contract

import (
	"strings"

	"github.com/gpumux/gpumux/internal/names"
)

// What lies in the folder of a map, beside the parts and the manifest, which are the
// store's.

// PartsOf is the folder with what belongs to a results file while it is being made.
func PartsOf(output string) string { return output + names.PartsEnding }

// ArraysOutput is the name of a results file in which arrays lie as bytes. Who gives it
// knows that the file is to be read through package store.
const ArraysOutput = "results.arrays.jsonl"

// KeepsArrays reports whether the results file with a folder keeps arrays as bytes.
func KeepsArrays(parts string) bool { return strings.HasSuffix(parts, "/"+PartsOf(ArraysOutput)) }

// SourceIndexOf is the key of the index of a source that is not the store's own.
func SourceIndexOf(parts string) string { return parts + "/source.index" }

// ReducedOf is the key of what a reduce came to.
func ReducedOf(parts string) string { return parts + "/reduced.json" }
