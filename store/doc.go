// Package store keeps what is too large for a workflow's history: sources of items, parts of results, results files.
//
// It owns the layout of keys, the format of the index and of parts, and the rule that a name from a map's input reaches
// nothing outside the store. It never decodes an item or a value, never decides what runs, and never deletes what it was not
// told to, except temporaries older than a day. A Store holds no goroutine between calls; Close lets go of its connections.
//
// Files: store.go (opening), place.go (a folder behind a URL), key.go (names to keys), writer.go (objects that appear whole or
// not at all), disk.go (the same on disk, with fsync), object.go (reading, listing, deleting), lines.go (JSON lines), csv.go
// (rows as JSON lines), text.go (lines of text), chain.go (several inputs), compress.go (gzip and zstd), sealed.go and
// unseal.go (objects that are encrypted), space.go, space_unix.go, space_other.go (the disk is not filled to its last byte),
// spool.go (any input into a local file), index.go (where items begin), source.go (sources in the store), line.go (one line of
// results), part.go (what a chunk came to), cursor.go (parts in order of index), merge.go (parts to one file), find.go (which
// items are done, sources that are known), results.go (reading a results file), tail.go (reading results while they come),
// foreign.go (reading a URL outside of the store).
package store
