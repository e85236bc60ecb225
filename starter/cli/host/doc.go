// Package host has the commands about workers, keys and the machine.
//
// It owns what they ask and print. It never starts a map that a user asked for. A command ends with its context, or at once
// with App.Hard.
package host
