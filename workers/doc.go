// Package workers is for operators: it turns a worker's file into devices, slots, activities and Temporal workers.
//
// It owns the file and its rules, which task a name stands for, which slot a call gets, when Temporal is asked for work, and
// the start and end of the whole worker; it is the one place where the parts are wired. It never runs a task itself, never
// reads items or results, and never runs what its file does not name. A Worker stops when Stop is called: it takes no new
// work, hands back what still runs, ends every task process and waits until nothing is left, or for a while where something hangs.
//
// Files: config.go (the file), health.go (whether the worker can do its work), document.go (reading YAML with all mistakes at
// once), problem.go (one mistake, and the list of them), pool_config.go (a pool and its devices), task_config.go (a task),
// user.go (whom it runs as), catalog.go (from a name to a task), module.go (what a folder's modules define), environment.go
// (what a device puts into the environment), pool.go (which slot a call gets), claim.go (which gets a device to itself),
// resize.go (more slots, or fewer), sizing.go (slots: auto), search.go (which number of slots is best), meter.go (what slots
// get done), supplier.go (when to ask for work), runner.go (a call on its way to a slot), contact.go (calls end when the server
// is out of reach), guard.go (devices that failed), watch.go (the memory of task processes), reserve.go (the host's),
// allowance.go (what processes take beside their data), means.go (what enforces a budget), probe.go (whether it does),
// metrics.go (what is counted, and who shows it), instruments.go (the SDK's metrics among it), queue.go (one Temporal worker
// per queue), connection.go (to Temporal), worker.go (start), shutdown.go (end), log.go (keys, and the bridge to Temporal's
// log), private.go (the log of a worker whose payloads are encrypted).
package workers
