// Package soak holds tests that take minutes, behind the build tag soak: `make soak` runs them.
//
// It owns no code of the product and never runs with the other tests. Each test stops with what it started.
//
// Files: executable_test.go (the program under test), million_test.go (a million items), network_test.go (hosts that are network
// namespaces), cluster_test.go (what runs on them), hosts_test.go (links and hosts that fail).
package soak
