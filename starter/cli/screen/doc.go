// Package screen is what a person sees of a command: its standard error with a status line, progress, tables, words for numbers.
//
// It owns how text reaches a terminal, and that no text of a task can steer it. It never decides what is said, and it knows no
// command. It starts no goroutine.
package screen
