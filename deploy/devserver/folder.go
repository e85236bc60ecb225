package devserver

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lockName = "temporal.lock"
	// exiting is how long a process may take to end that has stopped using its folder.
	exiting, exitCheck = time.Second, 10 * time.Millisecond
)

// folder is a data folder that only this process uses while lock is open.
type folder struct {
	path string // absolute
	lock *os.File
}

// openFolder creates the folder when it is missing and locks it. The system releases the lock of a dead process; the lock file stays and
// names the last owner.
func openFolder(path string) (*folder, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find data folder %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w; choose a folder that can be created with --data", err)
	}
	lock, err := os.OpenFile(filepath.Join(abs, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder is not writable: %w; make it writable or choose another folder with --data", err)
	}
	if err := acquire(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock data folder %s: %w", abs, err), lock.Close())
	}
	return &folder{path: abs, lock: lock}, nil
}

func acquire(lock *os.File) error {
	var err error
	for until := time.Now().Add(exiting); ; time.Sleep(exitCheck) {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(until) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("it is in use by another server (pid %s): stop that one or choose another folder with --data", owner(lock))
	}
	if err != nil {
		return fmt.Errorf("%w; choose a folder on a file system with locks with --data", err)
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func owner(lock *os.File) string {
	pid, _ := io.ReadAll(lock)
	return cmp.Or(strings.TrimSpace(string(pid)), "unknown")
}

func (f *folder) unlock() error {
	if err := f.lock.Close(); err != nil {
		return fmt.Errorf("unlock data folder %s: %w", f.path, err)
	}
	return nil
}
