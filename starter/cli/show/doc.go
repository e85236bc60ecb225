// Package show says to people what a map is and what its items came to: how it stands, why items failed, what they printed.
//
// It owns words and layout. It never decides what to look at: its callers give it what there is to show. It
// returns when it has written.
//
//   - detail.go: a map, running or over
//   - causes.go: why items failed, in a line per cause
//   - faults.go: why items failed, with all that helps to mend it
//   - logs.go: what items printed
//   - leases.go: the leases of a workflow
//   - lists.go: maps, workers and tasks in rows
package show
