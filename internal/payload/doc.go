// Package payload is how both sides of the Temporal server read what the other one sent.
//
// It owns the way from a payload to a checked input: anybody who may use the namespace can send any bytes to any workflow and
// activity, so nothing is done before the whole input was read and found good. It never decides what a good input is, which each
// input's Validate does, nor how its error is told. It holds no state and so never has to stop.
package payload
