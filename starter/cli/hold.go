package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/starter"
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

func (h *hold) release() {
	if h != nil {
		_ = h.file.Close()
	}
}

// mark is the file that says which run of a map has had its results written.
func (s *session) mark(id string) string { return filepath.Join(s.data, "delivered", id) }

// delivered reports whether the results of a run were written to their end.
func (s *session) delivered(h *starter.Handle) bool {
	run, err := os.ReadFile(s.mark(h.ID))
	return err == nil && strings.TrimSpace(string(run)) == h.FirstRunID()
}

// deliver notes that the results of a run were written. Without the note they are written once more.
func (s *session) deliver(h *starter.Handle) {
	mark := s.mark(h.ID)
	err := os.MkdirAll(filepath.Dir(mark), 0o700)
	if err == nil {
		err = os.WriteFile(mark, []byte(h.FirstRunID()+"\n"), 0o600)
	}
	if err != nil {
		s.app.console.say("note that the results are written: %v; the same command writes them again", err)
	}
}
