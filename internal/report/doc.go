// Package report writes for people: standard error with a status line, progress, tables,
// how a map stands, why its items failed, and the live picture of `gpumux top`.
//
// It owns words and layout, how text reaches a terminal, and that no text of a task can
// steer it. It never asks a server or a store: its callers hand it what to show. Top
// returns when the user leaves or its context ends; all else returns when it has written.
package report
