// Package starter starts, follows and prunes maps over a Temporal client.
//
// It owns the rules by which a map gets its ID, goes on or runs anew, and what callers
// see of it: progress, results, faults. It never runs a task, needs no worker in its
// process and prints nothing. It holds no goroutine beyond a call: every method ends with
// its context, and only Starter.Close lets go of the store that it opened.
//
// # Errors
//
// Every error type ends in Error and says what to do next. A map that did not complete is
// an *EndedError, from Handle.Wait, Watch, Results and Lines alike; errors.As finds the
// *gpumux.Fault that ended it. An item's failure is no error: it is in its gpumux.Result.
//
// # A map's life under one ID
//
// Every run of a map is a Temporal workflow run under the map's ID. Its results lie in a
// folder of the store that is made up at the first run, maps/<id>/<random>/, and kept in
// the workflow's memo:
//
//   - started while a run goes on: the caller is attached to it.
//   - started after a run that was cancelled, terminated or failed: a new run with the
//     same folder, which runs only the items that have no stored result.
//   - started after a completed run: a new run with a new folder, or with an ID that
//     the caller gave, the completed run itself.
//   - retried: the map of that task over those items, whatever its options; a new run
//     with a new folder into which the succeeded results are put first, so that these
//     items do not run again.
//
// A small map whose workers' store cannot be reached from here has no folder: its results
// travel inside the summary, and nothing of it goes on after it was cancelled or failed.
package starter
