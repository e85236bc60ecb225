// Package workflows is for authors of Temporal workflows: it maps a task over items from
// inside any workflow, and holds the registered workflow gpumux.Map.
//
// It owns the decisions of a map: which items are cut into which chunk, which rung of the
// ladder a piece runs on, how large a chunk is, when a map fails. It never runs an item,
// reads a file or asks a clock of its own. All that it knows comes from its input and
// from finished activities, so that a replay decides the same. It stops with the
// workflow.
//
// Importing it costs the Temporal SDK and a library for JSON: no cgo, no NVML, no
// processes, no logging library.
package workflows
