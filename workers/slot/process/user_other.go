//go:build !linux

package process

import "errors"

// CheckUsers says why this program cannot run tasks as other users.
func CheckUsers() error {
	return errors.New("only workers on Linux run tasks as another user; leave user out")
}
