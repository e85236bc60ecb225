package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

// Map starts a map of Options.Task, or goes on with the one that the same call started before, by the rules of package starter. The
// task, its edition and the pools are put into m here. What it leaves for the next call is deleted once Session.Ended allows it.
func Map(ctx context.Context, o Options, m starter.Map) (*Session, *starter.Handle, error) {
	if o.Task == nil {
		return nil, nil, mistake("TASK is missing")
	}
	o.fill(m.Input.Mode)
	o.Task.put(&m)
	m.Input.Ladder = nil
	for _, pool := range o.Pools {
		m.Input.Ladder = append(m.Input.Ladder, pool.Name)
	}
	made, own := m.ID == "", o.Data == ""
	if err := o.place(&m); err != nil {
		return nil, nil, err
	}
	s, err := open(ctx, o, m.ID, func(s *Session) error {
		if err := s.alone(m.ID); err != nil {
			return err
		}
		// Before anything of it is handed out, which would fail and end the map.
		if last, err := s.Open(s.ctx, m.ID); err == nil {
			return last.Suits(m)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	s.made, s.own = made, own
	if err := s.start(m); err != nil {
		s.Close(context.WithoutCancel(ctx))
		return nil, nil, err
	}
	return s, s.handle, nil
}

// place names a map that has no ID, and the folder of its state.
func (o *Options) place(m *starter.Map) (err error) {
	switch {
	case m.ID != "":
	case m.Retry && o.Data != "":
		m.ID, _ = m.Identify()
	default:
		if m.ID, err = o.resolve(*m); err != nil {
			return err
		}
	}
	if o.Data == "" {
		o.Data, err = Folder("local", m.ID)
	}
	return err
}

// start starts the session's map.
func (s *Session) start(m starter.Map) (err error) {
	if s.made {
		if err := s.unname(&m); err != nil {
			return err
		}
	}
	if s.o.Start != nil {
		s.handle, err = s.o.Start(s.ctx, s.Starter, m)
	} else {
		s.handle, err = s.Start(s.ctx, m)
	}
	if err != nil {
		return err
	}
	if s.own {
		_, fingerprint := m.Identify()
		s.note(fingerprint)
	}
	return s.reachable(m.Input.Ladder)
}

// unname takes the ID off a map that is to run anew, since its results were delivered, or that is to be found by its items.
func (s *Session) unname(m *starter.Map) error {
	if m.Retry {
		m.ID = "" // the map that is here, whatever its options were
		return nil
	}
	last, err := s.Open(s.ctx, m.ID)
	switch {
	case errors.As(err, new(*starter.NotFoundError)):
	case err != nil:
		return &UnavailableError{err}
	case s.delivered(last):
		m.ID = ""
	}
	return nil
}

// reachable makes sure that a map which goes on has a pool of this session's worker for each of its own.
func (s *Session) reachable(pools []string) error {
	if s.handle.Entry != starter.Attached {
		return nil
	}
	in, err := s.handle.Input(s.ctx)
	if err != nil {
		return err
	}
	for _, pool := range in.Rungs() {
		if !slices.Contains(pools, pool) {
			return mistake("map %s goes on with the pools that it was started with; give the pools %s", s.handle.ID, strings.Join(in.Rungs(), ","))
		}
	}
	return nil
}

// alone makes sure that the data folder holds no other unfinished map, which this worker would fail for want of its task.
func (s *Session) alone(id string) error {
	maps, err := s.List(s.ctx, starter.ListOptions{Running: true})
	if err != nil {
		return &UnavailableError{err}
	}
	for _, m := range maps {
		if m.ID != id {
			return mistake("%s holds the unfinished map %s of task %s; give that map's command again first (with the ID %s if its task has changed), or give another folder",
				s.Data, m.ID, m.Task, m.ID)
		}
	}
	return nil
}

// Ended says that the session's map is over, with which error, and whether its results were delivered, so that Map need not give them
// again. Nothing is left to go on with, and Close deletes the folder, where this package chose it and the map's ID, all items succeeded
// (there is no error) and the results are delivered; and where the input was bad from the start.
func (s *Session) Ended(delivered bool, err error) {
	if delivered {
		s.deliver()
	}
	var ended *starter.EndedError
	switch {
	case !s.own:
	case errors.As(err, &ended) && ended.Fault.Kind == gpumux.BadInput:
		s.useless = s.fresh && s.resultless()
	case s.made:
		s.useless = delivered && err == nil
	}
}

// resultless reports whether no item of any map of the folder has a stored result.
func (s *Session) resultless() bool {
	parts, err := filepath.Glob(filepath.Join(s.Data, "store", "maps", "*", "*", "*.parts", strings.Repeat("[0-9a-f]", 24)+".*"))
	return err == nil && len(parts) == 0
}

// mark is the file that says which run of a map has had its results delivered.
func (s *Session) mark(id string) string { return filepath.Join(s.Data, "delivered", id) }

// delivered reports whether the results of a run were delivered.
func (s *Session) delivered(h *starter.Handle) bool {
	run, err := os.ReadFile(s.mark(h.ID))
	return err == nil && strings.TrimSpace(string(run)) == h.FirstRunID()
}

// deliver notes that the results of the map's run were delivered. Without the note they are given once more.
func (s *Session) deliver() {
	mark := s.mark(s.handle.ID)
	err := os.MkdirAll(filepath.Dir(mark), 0o700)
	if err == nil {
		err = os.WriteFile(mark, []byte(s.handle.FirstRunID()+"\n"), 0o600)
	}
	if err != nil {
		s.say("note that the results are written: %v; the same command writes them again", err)
	}
}

// resolve gives a map without an ID the one that is made for it. A retry takes up the map of this task over these items that was used
// last, whatever its edition and options, since mending them is what it is for; it is a mistake when there is none. Otherwise the
// task's new edition makes a new map, and people are told.
func (o *Options) resolve(m starter.Map) (string, error) {
	id, fingerprint := m.Identify()
	root, err := Folder("local")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(root, id)); err == nil {
		return id, nil
	}
	if m.Retry {
		return retryable(m.Input.Task, fingerprint)
	}
	if other, ok := earlier(root, id, m.Edition); ok {
		o.Say(fmt.Sprintf("%s, or what it imports, has changed since map %s was stopped, so this is a new map; "+
			"to go on with that one, put the code back as it was and give the same command", m.Input.Task, other))
	}
	return id, nil
}

// earlier is the newest map of the same task, input and options that was stopped while its task had another edition.
func earlier(root, id, edition string) (newest string, found bool) {
	base, ok := strings.CutSuffix(id, "-"+edition)
	if !ok || edition == "" {
		return "", false
	}
	folders, err := filepath.Glob(filepath.Join(root, base+"-??????"))
	if err != nil {
		return "", false
	}
	var changed int64
	for _, folder := range folders {
		other := filepath.Base(folder)
		info, err := os.Stat(folder)
		if err != nil || other == id || info.ModTime().UnixNano() < changed {
			continue
		}
		if _, err := os.Stat(filepath.Join(folder, "delivered", other)); err != nil {
			newest, changed, found = other, info.ModTime().UnixNano(), true
		}
	}
	return newest, found
}

// retryable is the ID of the local map of a fingerprint that was used last.
func retryable(task, fingerprint string) (string, error) {
	states, err := States()
	if err != nil {
		return "", err
	}
	for _, s := range states {
		if s.Fingerprint == fingerprint && s.State != halfRemoved {
			return s.ID, nil
		}
	}
	return "", mistake("%v; a local map whose items all succeeded leaves nothing behind", &starter.NothingToRetryError{Task: task})
}
