// Package store keeps what is too large for a workflow's history: inputs, the results of
// maps and the files of their items.
//
// It owns how results lie in a store: the parts of a map while it runs, whose they are,
// and the results file; and memory of the last values that it stored between stages. It
// never decodes a value and never decides what runs. Nothing runs between calls.
package store
