package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// hold is the lock of this process on a data folder.
type hold struct{ file *os.File }

const (
	// lockFile names the process and the map that use a folder.
	lockFile = "map.lock"
	// leaveLimit is how long a map waits for a process that runs it and may be stopping.
	leaveLimit, leaveCheck = 5 * time.Second, 50 * time.Millisecond
)

// holdFolder claims a data folder for a map.
func holdFolder(ctx context.Context, data, id string) (*hold, error) {
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	for {
		h, again, err := claimFolder(data, id)
		if err == nil || !again {
			return h, err
		}
		select {
		case <-time.After(leaveCheck):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// claimFolder claims a data folder, or says who has it, and whether that is the same map.
func claimFolder(data, id string) (_ *hold, same bool, _ error) {
	file, err := os.OpenFile(filepath.Join(data, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("lock the state of map %s: %w; make the folder writable, or give another folder", id, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer file.Close()
		var pid int
		var other string
		if _, err := fmt.Fscanln(file, &pid, &other); err == nil && other != id {
			return nil, false, fmt.Errorf("%s is in use by process %d for map %s; give another folder, or wait for it", data, pid, other)
		}
		return nil, true, fmt.Errorf("this map runs already in process %d; wait for it, or stop it with `kill -INT %d` and give the command again "+
			"to go on", pid, pid)
	}
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt(fmt.Appendf(nil, "%d %s\n", os.Getpid(), id), 0)
	}
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("lock the state of map %s: %w", id, err), file.Close())
	}
	return &hold{file}, false, nil
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
