// Package cli is the command line of gpumux: cobra commands, thin over packages starter, starter/local and workers.
//
// It owns flags, exit codes, and what people and programs are shown. It never decides how a map runs; that is starter's and the
// workflow's. Main returns the exit code when the command is done or interrupted: the first Ctrl-C stops cleanly, the second at
// once.
//
// Data goes to standard output, all else to standard error. Exit codes are those of package app.
package cli
