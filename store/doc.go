// Package store keeps what is too large for a workflow's history: sources of items, parts of results, results files.
//
// It owns the layout of keys, the format of the index and of parts, and the rule that a name from a map's input reaches
// nothing outside the store. It never decodes an item or a value and never decides what runs. It deletes only what it is told to,
// and temporaries older than a day. A Store has no goroutine between calls. Close ends its connections.
package store
