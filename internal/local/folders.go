package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/starter"
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
	// State is running, interrupted (its command goes on with it) or kept (its results were
	// written).
	State string `json:"state"`
	// Folder is where the map was started, Command how.
	Folder  string   `json:"folder,omitempty"`
	Command []string `json:"command,omitempty"`
	// Out is the file that will have its results.
	Out string `json:"out,omitempty"`
	// Fingerprint is as in starter.Map, Output the key of the results file.
	Fingerprint string `json:"fingerprint,omitempty"`
	Output      string `json:"output,omitempty"`
	// Made says that this package chose the ID. Delivered is the first run of the map whose
	// results were written.
	Made      bool   `json:"made,omitempty"`
	Delivered string `json:"delivered,omitempty"`
	Bytes     int64  `json:"bytes"`
	// Used is when something in it last changed.
	Used time.Time `json:"used"`
	Path string    `json:"path"`
}

const (
	// noteFile is the file of a map's folder that says how to go on with it.
	noteFile = "map.json"
	// removedSuffix ends the name of a folder that is being deleted; no ID ends so.
	removedSuffix = "~"
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
		if entry.IsDir() && !strings.HasSuffix(entry.Name(), removedSuffix) {
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
	s.ID, s.Path, s.State = filepath.Base(path), path, "interrupted"
	if s.Delivered != "" {
		s.State = "kept"
	}
	if held(path) {
		s.State = "running"
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

// Results are those that a map of this machine has so far.
type Results struct {
	// Lines are as those of starter.Handle with arrays as they are stored: in order if
	// Whole, so that every item has one, else in none.
	Lines iter.Seq2[[]byte, error]
	Whole bool
	// Map has the files that items keep.
	Map   *starter.Handle
	Close func()
}

func (s State) Results(ctx context.Context) (*Results, error) {
	from := &starter.Starter{Store: storeIn(s.Path)}
	st, err := from.UseStore(ctx)
	if err != nil {
		return nil, &UnavailableError{err}
	}
	r := &Results{Lines: st.Lines(ctx, s.Output), Map: from.Completed(gpumux.Summary{Output: s.Output}), Close: from.Close}
	if r.Whole, err = st.Objects.Exists(ctx, s.Output); err == nil && !r.Whole {
		var parts *store.Folder
		if parts, err = st.Folder(contract.PartsOf(s.Output)); err == nil {
			r.Lines = parts.Tail(true).Lines(ctx, nil)
		}
	}
	if err != nil {
		from.Close()
		return nil, err
	}
	return r, nil
}

func storeIn(data string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(data, "store"))}).String()
}

// Remove deletes the folder and the results in it, delivered or not.
func (s State) Remove() error {
	hold, holders, err := claimFolder(s.Path)
	if err != nil {
		return err
	}
	if hold == nil {
		return unavailable("local map %s runs in %s; stop it first", s.ID, strings.Join(holders, ""))
	}
	if err := removeFolder(s.Path, hold); err != nil {
		return unavailable("remove local map %s: %w", s.ID, err)
	}
	return nil
}

// removeFolder renames a data folder before it deletes it, so that nothing is half there.
// NFS keeps a folder that has an open file.
func removeFolder(data string, hold *os.File) error {
	gone := data + removedSuffix
	err := os.RemoveAll(gone)
	if err == nil {
		err = os.Rename(data, gone)
	}
	_ = hold.Close()
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
	root, err := Folder("local")
	if err != nil {
		return err
	}
	halves, _ := filepath.Glob(filepath.Join(root, "*"+removedSuffix))
	for _, half := range halves {
		err = errors.Join(err, os.RemoveAll(half))
	}
	states, unread := States()
	err = errors.Join(err, unread)
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

// write notes how to go on with the session's map, which runs without the note too.
func (s *Session) write() {
	var err error
	if s.note.Folder, err = os.Getwd(); err == nil {
		var data []byte
		if data, err = json.Marshal(s.note); err == nil {
			err = os.WriteFile(filepath.Join(s.Data, noteFile), data, 0o600)
		}
	}
	if err != nil {
		s.say("note in %s how far the map is: %v; `gpumux local` does not show it, and the same command writes its results again", s.Data, err)
	}
}

const (
	// lockFile names the process that uses a data folder.
	lockFile     = "temporal.lock"
	holderFormat = "process %d of %s"
	// leaveLimit is how long a folder's next user waits for one that may be stopping.
	leaveLimit, leaveCheck = 5 * time.Second, 50 * time.Millisecond
)

// holdFolder makes a data folder and locks it, for a map or for a server alone. The
// system releases the lock of a dead process; the lock file stays.
func holdFolder(ctx context.Context, data string, isMap bool) (hold *os.File, holders []string, err error) {
	for until := time.Now().Add(leaveLimit); ; time.Sleep(leaveCheck) {
		if err := makeFolder(data); err != nil { // a map that has just ended removes it
			return nil, nil, err
		}
		hold, holders, err := claimFolder(data)
		holder := cmp.Or(strings.Join(holders, ""), "another process")
		switch {
		case hold != nil || err != nil:
			return hold, holders, err
		case ctx.Err() == nil && time.Now().Before(until):
		case isMap:
			return nil, nil, unavailable("this map runs already in %s; wait for it, or stop it with `kill -INT` and give the command again to go on", holder)
		default:
			return nil, nil, unavailable("%s is in use by %s; stop it, or give another folder; on NFS the lock of a lost host ends after 90 s", data, holder)
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

// claimFolder locks a folder. It returns the processes that had it since one took over
// from all before. Where another has it, it returns that one and no lock, and where the
// folder was removed meanwhile, neither.
func claimFolder(data string) (hold *os.File, holders []string, err error) {
	path := filepath.Join(data, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case err != nil:
		return nil, nil, unavailable("lock %s: %w; make the folder writable, or give another folder", data, err)
	}
	defer func() {
		if hold == nil {
			_ = file.Close()
		}
	}()
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	text, _ := os.ReadFile(path)
	holders = strings.Split(strings.TrimSpace(string(text)), "\n")
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, holders[len(holders)-1:], nil
	}
	if err == nil {
		now, gone := os.Stat(path)
		if locked, _ := file.Stat(); gone != nil || !os.SameFile(now, locked) {
			return nil, nil, nil
		}
		err = writeHolder(file, int64(len(text)))
	}
	if err != nil {
		return nil, nil, unavailable("lock %s: %w; give another folder, on a file system with locks", data, err)
	}
	return file, holders, nil
}

// writeHolder ends the lock file with this process, behind what stays of it.
func writeHolder(file *os.File, behind int64) error {
	host, _ := os.Hostname()
	line := fmt.Appendf(nil, holderFormat+"\n", os.Getpid(), host)
	_, err := file.WriteAt(line, behind)
	return errors.Join(err, file.Truncate(behind+int64(len(line))), file.Sync()) // for other hosts
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
