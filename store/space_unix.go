//go:build linux || darwin

package store

import "golang.org/x/sys/unix"

// freeSpace is how many bytes a folder's file system still takes from this user. Only tests change it.
var freeSpace = func(dir string) (bytes int64, known bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
