// Package launch says how the process of a task is started: its words, its environment and the edition of its code.
//
// It owns Task and what is asked of the system before a start, which may hang where a file system does: each question ends with its
// context or its limit. It starts no task process and knows neither slots nor items' results.
package launch
