package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// hold is the claim of this process to a data folder. The system ends it with the process.
type hold struct{ file *os.File }

// lockFile names the process and the map that use a folder.
const lockFile = "map.lock"

// holdFolder claims a data folder for a map. The file that it locks names the process and the map.
func holdFolder(data, id string) (*hold, error) {
	file, err := os.OpenFile(filepath.Join(data, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state of map %s: %w; make the folder writable, or give another with --data", id, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer file.Close()
		return nil, heldBy(file, data, id)
	}
	if err == nil {
		if err = file.Truncate(0); err == nil {
			_, err = fmt.Fprintf(file, "%d %s\n", os.Getpid(), id)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the state of map %s: %w", id, err), file.Close())
	}
	return &hold{file}, nil
}

// heldBy says who has the folder.
func heldBy(file *os.File, data, id string) error {
	var pid int
	var other string
	switch _, err := fmt.Fscan(file, &pid, &other); {
	case err != nil: // it has only just begun
		return fmt.Errorf("another process has just started to use %s; wait for it", data)
	case other != id:
		return fmt.Errorf("--data %s is in use by process %d for map %s; give another --data, or wait for it", data, pid, other)
	}
	return fmt.Errorf("this map runs already in process %d; wait for it, or stop it with `kill -INT %d` and give the command again to go on",
		pid, pid)
}

// held reports whether a process uses the folder now.
func held(data string) bool {
	file, err := os.Open(filepath.Join(data, lockFile))
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func (h *hold) release() {
	if h != nil {
		_ = h.file.Close()
	}
}
