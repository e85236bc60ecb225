package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
)

// Folder is below gpumux in XDG_STATE_HOME, else in ~/.local/state.
func Folder(parts ...string) (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", mistake("there is no folder for the state of local maps: %v; set HOME or XDG_STATE_HOME", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(append([]string{state, "gpumux"}, parts...)...), nil
}

// State describes the folder of a map.
type State struct {
	ID string `json:"id"`
	// State is running, interrupted (its command goes on with it), kept (its results were
	// written; its own ID keeps it) or half removed (of no use any more).
	State string `json:"state"`
	// Folder is where the map was started, Command how.
	Folder  string   `json:"folder,omitempty"`
	Command []string `json:"command,omitempty"`
	// Fingerprint is as in starter.Map, Output the key of the results file.
	Fingerprint string `json:"fingerprint,omitempty"`
	Output      string `json:"output,omitempty"`
	// Made says that this package chose the ID and the folder.
	Made  bool  `json:"made,omitempty"`
	Bytes int64 `json:"bytes"`
	// Used is when something in it last changed.
	Used time.Time `json:"used"`
	Path string    `json:"path"`
	// Notices of its last worker say what changes what the map gets.
	Notices []string `json:"notices,omitempty"`
}

const (
	// noteFile is the file of a map's folder that says how to go on with it.
	noteFile = "map.json"
	// removedSuffix ends the name of a folder that is being deleted; no ID ends so.
	removedSuffix = "~"
	halfRemoved   = "half removed"
	running       = "running"
	// followPause is between two looks whether a map still runs.
	followPause = 250 * time.Millisecond
)

// States describes the maps that have folders of their own, the last used first.
func States() ([]State, error) {
	root, err := Folder("local")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unavailable("list local maps: %w", err)
	}
	states := []State{}
	for _, entry := range entries {
		if entry.IsDir() {
			states = append(states, stateAt(filepath.Join(root, entry.Name())))
		}
	}
	slices.SortFunc(states, func(a, b State) int { return b.Used.Compare(a.Used) })
	return states, nil
}

// StateOf describes the map with an ID. It has no Output where nothing of it is left.
func StateOf(id string) (State, error) {
	path, err := Folder("local", id)
	if err != nil {
		return State{}, err
	}
	return stateAt(path), nil
}

func stateAt(path string) State {
	s := State{}
	if data, err := os.ReadFile(filepath.Join(path, noteFile)); err == nil {
		_ = json.Unmarshal(data, &s) // half a note counts as none
	}
	said, _ := os.ReadFile(filepath.Join(path, noticesFile))
	s.Notices = strings.FieldsFunc(string(said), func(char rune) bool { return char == '\n' })
	s.ID, s.Path, s.State = filepath.Base(path), path, "interrupted"
	if strings.HasSuffix(s.ID, removedSuffix) {
		s.State = halfRemoved
	}
	if _, err := os.Stat(filepath.Join(path, "delivered", s.ID)); err == nil {
		s.State = "kept"
	}
	if held(path) {
		s.State = running
	}
	// Unreadable and vanished files do not count.
	_ = filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			if info.Mode().IsRegular() {
				s.Bytes += info.Size()
			}
			if info.ModTime().After(s.Used) {
				s.Used = info.ModTime()
			}
		}
		return nil
	})
	return s
}

// Store opens the store of the folder.
func (s State) Store(ctx context.Context, keys store.Keys) (*store.Store, error) {
	st, err := store.Open(ctx, storeIn(s.Path), keys)
	if err != nil {
		return nil, &UnavailableError{err}
	}
	return st, nil
}

// Lines yields the results that the map has stored in st so far, as lines, each once and
// in no order. With follow it goes on while the map runs; an empty line says that nothing
// more is there at the moment.
func (s State) Lines(ctx context.Context, st *store.Store, follow bool) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		folder, err := st.Folder(contract.PartsOf(s.Output))
		if err != nil {
			yield(nil, err)
			return
		}
		var over chan struct{}
		if follow {
			over = make(chan struct{})
			go func() {
				defer close(over)
				for held(s.Path) && ctx.Err() == nil {
					time.Sleep(followPause)
				}
			}()
		}
		folder.Tail(true).Lines(ctx, over)(yield)
	}
}

func storeIn(data string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(data, "store"))}).String()
}

// Remove deletes the folder and the results in it, delivered or not.
func (s State) Remove() error {
	hold, _, err := claimFolder(s.Path, s.ID)
	if err != nil {
		return err
	}
	defer hold.Close()
	if err := removeFolder(s.Path); err != nil {
		return unavailable("remove local map %s: %w", s.ID, err)
	}
	return nil
}

// removeFolder renames a data folder before it deletes it.
func removeFolder(data string) error {
	gone := data + removedSuffix
	err := os.RemoveAll(gone)
	if err == nil {
		err = os.Rename(data, gone)
	}
	if err == nil {
		err = os.RemoveAll(gone)
	}
	return err
}

const (
	// keptFor and keptBytes bound what stays of maps without an ID of the user's.
	keptFor         = 30 * 24 * time.Hour
	keptBytes int64 = 1 << 30
)

// tidy removes the folders of maps without a user's ID that were unused for keptFor.
// Where the results were written it also removes the oldest beyond keptBytes in all.
func tidy(now time.Time) error {
	states, err := States()
	var bytes int64
	for _, s := range states {
		if !s.Made || s.State == "running" {
			continue
		}
		if s.State == "kept" {
			bytes += s.Bytes
		}
		if now.Sub(s.Used) > keptFor || s.State == "kept" && bytes > keptBytes {
			err = errors.Join(err, s.Remove())
		}
	}
	return err
}

// note writes down how to go on with the session's map, which runs without the note too.
func (s *Session) note(fingerprint string) {
	dir, err := os.Getwd()
	if err == nil {
		var data []byte
		noted := State{ID: s.handle.ID, Folder: dir, Command: s.o.Command, Fingerprint: fingerprint, Output: s.handle.Output, Made: s.made}
		if data, err = json.Marshal(noted); err == nil {
			err = os.WriteFile(filepath.Join(s.Data, noteFile), data, 0o600)
		}
	}
	if err != nil {
		s.say("note the command in %s: %v; `gpumux local` will not show it", s.Data, err)
	}
}

// Results opens the store of a finished map and finds its newest results file there. Data
// is the folder that the map's command named, if it did.
func Results(ctx context.Context, data, id string, keys store.Keys) (st *store.Store, output string, err error) {
	if data == "" {
		data, err = Folder("local", id)
	} else {
		data, err = filepath.Abs(data)
	}
	if err != nil {
		return nil, "", err
	}
	stored := os.DirFS(filepath.Join(data, "store"))
	files, _ := fs.Glob(stored, path.Join("maps", id, "*", contract.ArraysOutput)) // one per run
	var newest time.Time
	for _, file := range files {
		if info, err := fs.Stat(stored, file); err == nil && info.ModTime().After(newest) {
			newest, output = info.ModTime(), file
		}
	}
	if output == "" {
		return nil, "", mistake("there are no results of a finished map %s in %s; a local map keeps them if it was given an ID or a folder",
			id, data)
	}
	if st, err = store.Open(ctx, storeIn(data), keys); err != nil {
		return nil, "", &UnavailableError{err}
	}
	return st, output, nil
}

const (
	// lockFile names the process and, where it runs one, the map that use a data folder.
	lockFile = "temporal.lock"
	// leaveLimit is how long a folder's next user waits for one that may be stopping.
	leaveLimit, leaveCheck = 5 * time.Second, 50 * time.Millisecond
)

// holdFolder makes a data folder and locks it for a map, or for a server when id is
// empty. The system releases the lock of a dead process; the lock file stays.
func holdFolder(ctx context.Context, data, id string) (*os.File, error) {
	for until := time.Now().Add(leaveLimit); ; time.Sleep(leaveCheck) {
		if err := makeFolder(data); err != nil { // a map that has just ended removes it
			return nil, err
		}
		hold, same, err := claimFolder(data, id)
		if err == nil || !same || ctx.Err() != nil || time.Now().After(until) {
			return hold, err
		}
	}
}

// makeFolder makes a data folder. Others may read a folder of the user's own, but not the
// store in it.
func makeFolder(data string) error {
	private := filepath.Join(data, "store")
	err := os.MkdirAll(private, 0o700)
	if err == nil {
		err = os.Chmod(private, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailable("make a folder that others cannot enter: %w; give another folder", err)
	}
	return nil
}

// claimFolder locks a folder, or says who uses it, and whether that is for the same map.
func claimFolder(data, id string) (hold *os.File, same bool, err error) {
	path := filepath.Join(data, lockFile)
	hold, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errors.Is(err, fs.ErrNotExist), unavailable("lock %s: %w; make the folder writable, or give another folder", data, err)
	}
	file := hold
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	err = unix.Flock(int(hold.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		var pid int
		var user string
		_, _ = fmt.Fscanln(hold, &pid, &user) // a server's lock names no map
		switch user {
		case "":
			return nil, id == "", unavailable("%s is in use by process %d; stop it, or give another folder", data, pid)
		case id:
			return nil, true, unavailable("this map runs already in process %d; wait for it, or stop it with `kill -INT %d` and give the command again "+
				"to go on", pid, pid)
		}
		return nil, false, unavailable("%s is in use by process %d for map %s; give another folder, or wait for it", data, pid, user)
	}
	if err == nil {
		now, gone := os.Stat(path)
		if mine, _ := hold.Stat(); gone != nil || !os.SameFile(now, mine) {
			return nil, true, unavailable("%s was removed meanwhile; give the command again", data)
		}
		err = hold.Truncate(0)
	}
	if err == nil {
		_, err = hold.WriteAt(fmt.Appendf(nil, "%d %s\n", os.Getpid(), id), 0)
	}
	if err != nil {
		return nil, false, unavailable("lock %s: %w; give another folder, on a file system with locks", data, err)
	}
	return hold, false, nil
}

// held reports whether a process uses a data folder.
func held(data string) bool {
	file, err := os.Open(filepath.Join(data, lockFile))
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
