// Package process owns one operating-system process with its descendants: its start, its
// mark, cgroup, user, output file and out-of-memory score, its end, and the sweeper that
// ends what a killed worker leaves. It never speaks with the process. A Process stops
// when Destroy or Kill returns, or by itself; Exited is closed then.
package process
