// Package process owns one operating-system process with all its descendants: its start, the mark that finds its descendants, its
// cgroup, user, output file and out-of-memory score, its end, and the sweeper that ends what a killed worker leaves. It never speaks
// with the process and knows neither tasks nor items. A Process stops when Destroy or Kill returns, or by itself; Exited is closed
// then.
package process
