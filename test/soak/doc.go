// Package soak holds tests that take minutes: `make soak` runs them, by their build tag.
//
// It never runs with the other tests. Each test stops with what it started.
package soak
