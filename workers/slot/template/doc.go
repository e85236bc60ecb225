// Package template keeps processes with an imported task, and forks fresh ones off.
//
// It owns which templates there are, and when a task bears no fork. A template runs no
// item, and what was forked stays when it ends. It stops when Close returns.
package template
