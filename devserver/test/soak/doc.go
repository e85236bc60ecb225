// Package soak holds tests that take minutes, behind the build tag soak: `make soak` runs them.
//
// It owns no code of the product and never runs with the other tests. Each test stops with what it started.
package soak
