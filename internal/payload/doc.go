// Package payload reads what workflows and activities are sent.
//
// It owns the way from a payload to a checked input: anybody who may use the namespace
// can send any bytes to any workflow and activity, so nothing happens before the whole
// input was read and checked. It never decides what a valid input is; package contract
// does. Its callers decide how to report the error. It holds no state and so never has to
// stop.
package payload
