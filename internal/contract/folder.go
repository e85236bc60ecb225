package contract

// What lies in the folder of a map, beside the parts and the manifest, which are the store's.

// PartsOf is the folder with what belongs to a results file while it is being made.
func PartsOf(output string) string { return output + ".parts" }

// SourceIndexOf is the key of the index of a source that is not the store's own.
func SourceIndexOf(parts string) string { return parts + "/source.index" }

// ResultsIndexOf is the key of the index of the results file, for a reduce.
func ResultsIndexOf(parts string) string { return parts + "/results.index" }

// ReduceOf is the folder of what a reduce has come to so far.
func ReduceOf(parts string) string { return parts + "/reduce" }
