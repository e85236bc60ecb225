// Package arrays reads arrays of numbers as bytes, and writes the JSON they stand for.
//
// It owns their layout, which docs/wire.md describes, and the digits of numbers. It never
// changes a value, and takes no memory before it knows that a value is sound. It holds no
// state.
package arrays
