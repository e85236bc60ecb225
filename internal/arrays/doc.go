// Package arrays reads values that hold arrays of numbers as bytes, and writes the JSON that they stand for.
//
// It owns the layout of such values, which docs/wire.md describes, and the digits of numbers. It never changes a value, and takes no
// memory before it knows that a value is sound.
package arrays
