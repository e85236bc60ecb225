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

// hold is the claim of this process to a data folder. The system ends it with the process.
type hold struct {
	file *os.File
	id   string
}

const (
	// lockFile names the process and the map that use a folder.
	lockFile = "map.lock"
	// leaving follows them once the process stops, for which the next one waits.
	leaving = "stops"
	// leaveLimit is how long it waits, leaveCheck how often it looks.
	leaveLimit, leaveCheck = 30 * time.Second, 50 * time.Millisecond
)

// holdFolder claims a data folder for a map. It waits for a process that stops, and for no other.
func holdFolder(ctx context.Context, data, id string) (*hold, error) {
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	for {
		h, stopping, err := claimFolder(data, id)
		if err == nil || !stopping {
			return h, err
		}
		select {
		case <-time.After(leaveCheck):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// claimFolder claims a data folder, or says who has it, and whether that process stops.
func claimFolder(data, id string) (_ *hold, stopping bool, _ error) {
	file, err := os.OpenFile(filepath.Join(data, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("lock the state of map %s: %w; make the folder writable, or give another folder", id, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer file.Close()
		stopping, err = heldBy(file, data, id)
		return nil, stopping, err
	}
	h := &hold{file, id}
	if err == nil {
		if err = file.Truncate(0); err == nil {
			err = h.write("")
		}
	}
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("lock the state of map %s: %w", id, err), file.Close())
	}
	return h, false, nil
}

// write says who has the folder, and what it does.
func (h *hold) write(does string) error {
	_, err := h.file.WriteAt(fmt.Appendf(nil, "%d %s %s\n", os.Getpid(), h.id, does), 0)
	return err
}

// leave says that this process stops.
func (h *hold) leave() {
	if h != nil {
		_ = h.write(leaving)
	}
}

// heldBy says who has the folder, and whether that process stops.
func heldBy(file *os.File, data, id string) (stopping bool, _ error) {
	var pid int
	var other, does string
	switch n, err := fmt.Fscanln(file, &pid, &other, &does); {
	case n < 2: // it has only just begun
		return false, fmt.Errorf("another process has just started to use %s; wait for it", data)
	case other != id:
		return false, fmt.Errorf("%s is in use by process %d for map %s; give another folder, or wait for it", data, pid, other)
	default:
		stopping = err == nil && does == leaving
	}
	return stopping, fmt.Errorf("this map runs already in process %d; wait for it, or stop it with `kill -INT %d` and give the command again to go on",
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
