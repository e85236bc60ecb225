// Package process is one operating-system process with all its descendants, from its start to nothing left.
//
// It owns how a task process starts so that nothing outlives the worker: marks by which descendants are found wherever they went,
// a cgroup, a user, a file for what is printed, the kernel's choice when memory runs out, and the sweeper for a worker that was
// killed. It never speaks with the process and knows neither tasks nor items. A Process stops when Destroy or Kill returns, or by
// itself; Exited is closed then.
package process
