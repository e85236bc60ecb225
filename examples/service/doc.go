// Command service is a Go service with a Temporal workflow of its own that maps a gpumux
// task over its input.
//
// It owns the workflow Languages and a worker for it. It never runs a task itself: the
// slots are at the gpumux workers, which may be on other machines. `service` serves until
// Ctrl-C; `service TEXT…` starts the workflow, prints its result and ends.
package main
