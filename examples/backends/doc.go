// Command backends is a Go service whose workflow does operations on an ordered chain of backends, and on devices chosen by hand.
//
// A backend is a pool of slots and a Python module of the same name. Arrays stay in the slots as residents; handles travel. It starts
// its worker, runs the workflow once, and prints where each operation ran, and its numbers, as JSON.
package main
