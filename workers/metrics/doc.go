// Package metrics is what a worker counts, and who shows it.
//
// It owns the names of metrics, the Temporal SDK's among them, and the server that shows them to Prometheus and says whether the
// worker is well. Counting never waits for a slot or a driver. The server stops with Stop.
package metrics
