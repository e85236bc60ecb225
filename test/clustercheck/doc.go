// Package clustercheck runs gpumux on a real cluster on one machine, on loopback:
// PostgreSQL, Temporal's four services as processes, an S3 server, and workers and
// clients of gpumux-worker.
//
// It owns fetch.sh, which gets these programs, and every process that it starts; each has
// a loopback address of its own. It never installs anything and never runs with the other
// tests: `make cluster-check` runs it, with RUN=Outage one part alone: Outage, Workers,
// TwoOfEach, Stages, Load, Limits or Stock. All processes end with the test binary.
package clustercheck
