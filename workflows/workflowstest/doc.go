// Package workflowstest is for tests of workflows that map: Go functions stand in for
// tasks, without a worker, Python or a store.
//
// It owns the stand-ins of the activity gpumux.RunChunk, of those of leases, and of the
// workflow gpumux.Map in a test environment of the Temporal SDK, and answers as workers
// do: a result per item, a fault for an item that fails, an error that names the tasks
// for one that nobody knows. It never cuts, retries or reduces. What it holds belongs to
// one environment and goes with it.
package workflowstest
