// Package template keeps processes that have imported a task, and forks the processes of fresh items from them.
//
// It owns which templates there are, whether what an import left bears a fork, and when a task is not forked any more. A template runs
// no item, and what was forked from it stays when it ends. It stops when Close returns.
package template
