// Package show prints for people how a map stands, why its items failed, and what they
// printed.
//
// It owns words and layout. It never asks a server or a store: its callers hand it what
// to show. It returns when it has written.
package show
