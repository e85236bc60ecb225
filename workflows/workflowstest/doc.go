// Package workflowstest is for tests of workflows that map: Go functions stand in for
// tasks, without a worker, Python or a store.
//
// It owns the stand-ins of the activities that maps in workflows use, and of the workflow
// gpumux.Map in a test environment of the Temporal SDK, and answers as workers do: a
// result per item, a fault for an item that fails, an error that names the tasks for one
// that nobody knows. Results of a map are there for Page, ValuesOf and FailedOf;
// stages run. Pools, timeouts and attempts count for nothing: every pool serves, each
// item runs once, and a map that is to fail needs Tasks.Fail. What it holds belongs to
// one environment and goes with it.
package workflowstest
