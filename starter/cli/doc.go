// Package cli is the command line of gpumux: the tree of its commands, and those about maps, thin over starter and
// starter/local.
//
// It owns the flags of those commands, how a command ends, and which exit code an error is. It never decides how a map runs. Main
// returns when the command is done or interrupted: the first Ctrl-C stops cleanly, the second at once.
//
// Data goes to standard output, all else to standard error. The exit codes are those of package app.
package cli
