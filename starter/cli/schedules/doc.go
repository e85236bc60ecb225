// Package schedules shows the schedules of maps to people.
//
// It owns the table and the page. It never asks a server, and returns when it has written.
package schedules
