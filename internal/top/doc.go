// Package top shows workers, slots and maps live in a terminal.
//
// It owns the picture and the keys. It never asks a server: its caller gives it a
// snapshot again and again. Run returns when the user leaves or its context ends.
package top
