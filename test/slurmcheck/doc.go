// Package slurmcheck runs gpumux under a real Slurm on one machine: a controller and two
// nodes of Debian's packages, with munge, two partitions of which one preempts the other,
// and two GPUs per node that are files for Slurm and stand-ins for everybody else.
//
// It owns fetch.sh, which installs these packages, and every process of Slurm that it
// starts, as root. It never runs with the other tests: `make slurm-check` runs it, with
// RUN=TimeLimit one part alone. All processes end with the test binary.
package slurmcheck
