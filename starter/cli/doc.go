// Package cli is the command line of gpumux: cobra commands, thin over packages starter and workers.
//
// It owns flags, exit codes, what people and programs are shown, and the life of a local map: its folder, server and worker.
// It never decides how a map runs; that is starter's and the workflow's. Main returns the exit code when the command is done
// or interrupted: the first Ctrl-C stops cleanly, the second at once.
//
// Data goes to standard output, all else to standard error. Exit codes are in exit.go.
//
// Files: main.go (Main), exit.go (errors to exit codes), command.go (the tree of commands), interrupt.go (signals), dead.go
// (workers that are gone), connection.go (Temporal and the store), keys.go (what encrypts both), codecserver.go, console.go
// (standard error), visible.go (what steers a terminal), bar.go (progress), table.go (columns), log.go (the worker's log),
// input.go and output.go (items and results in files), place.go (where results may go), localtask.go (TASK with --local),
// edition.go (whether its code has changed), mapflags.go (flags of a map), map.go, maplocal.go (a map with --local), hold.go
// (whose a local map's folder is, and whether its results are delivered), folders.go (what local maps left), room.go (on their
// disk), follow.go (watching a map), report.go (what a map came to), local.go and session.go (a server and a worker for one
// command), pools.go (its pools), run.go, ls.go, show.go, wait.go, results.go, steer.go, retry.go, gpus.go, worker.go,
// workers.go (workers and tasks), paste.go (commands in hints), dev.go, doctor.go, checks.go (what doctor looks at), bench.go,
// version.go.
package cli
