// Package devices is what a person sees of a machine's devices.
//
// It owns what is told of them, as a table and as the JSON that docs/gpus.schema.json describes. It never changes a device and never
// decides whether one is used. It starts no goroutine.
package devices
