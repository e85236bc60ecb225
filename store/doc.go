// Package store keeps what is too large for a workflow's history: sources of items, parts of results, results files.
//
// It owns the layout of keys, the format of the index and of parts, and the rule that a name from a map's input reaches
// nothing outside the store. It never decodes an item or a value, never decides what runs, and never deletes what it was not
// told to, except temporaries older than a day. A Store holds no goroutine between calls; Close lets go of its connections.
package store
