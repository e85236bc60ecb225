// Package checks tries what gpumux needs of a machine, and says what to do where it fails.
//
// It owns the checks that need no connection to Temporal, and the lines that people read. It leaves nothing behind: no process, file or
// object. A check ends with its context, or after two minutes.
package checks
