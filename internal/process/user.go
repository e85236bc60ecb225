package process

import (
	"fmt"
	"os"
	"syscall"
)

// User is a user of the system, other than the worker's, that runs a task.
type User struct {
	Name     string
	UID, GID uint32
	// Groups are the supplementary ones.
	Groups []uint32
	// Home is its HOME.
	Home string
}

// HasHome reports whether its home exists and is its own, and no link.
func (u *User) HasHome() bool {
	info, err := os.Lstat(u.Home)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == u.UID
}

// MakeHome makes its home where there is none.
func (u *User) MakeHome() error {
	err := os.Mkdir(u.Home, 0o700)
	if err == nil {
		err = os.Lchown(u.Home, int(u.UID), int(u.GID))
	}
	if err != nil && !u.HasHome() {
		return fmt.Errorf("make the home %s of user %s: %w; remove what is there", u.Home, u.Name, err)
	}
	return nil
}
