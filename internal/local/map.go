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

// Map starts a map of Options.Task, or goes on with it, by the rules of package starter.
// It fills in the task, its edition and the pools. Session.Ended says when its state can
// go.
func Map(ctx context.Context, o Options, m *starter.Map) (_ *Session, _ *starter.Handle, err error) {
	defer func() {
		if err != nil {
			o.closeInventory()
		}
	}()
	if o.Task == nil {
		return nil, nil, mistake("TASK is missing")
	}
	if err := o.fill(ctx, m.Input.Mode); err != nil {
		return nil, nil, err
	}
	o.Task.put(m)
	m.Input.Ladder = nil
	for _, pool := range o.Pools {
		m.Input.Ladder = append(m.Input.Ladder, pool.Name)
	}
	made, own := m.ID == "", o.Data == ""
	if err := o.place(m); err != nil {
		return nil, nil, err
	}
	s, err := open(ctx, o, m)
	if err != nil {
		return nil, nil, err
	}
	s.made, s.own = made, own
	if err := s.start(*m); err != nil {
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

func (s *Session) start(m starter.Map) (err error) {
	if s.made {
		if err := s.unname(&m); err != nil {
			return err
		}
	}
	if s.handle, err = s.Start(s.ctx, m); err != nil {
		return err
	}
	if s.own {
		_, fingerprint := m.Identify()
		s.note(fingerprint)
	}
	return s.reachable(m.Input.Ladder)
}

// unname clears a made ID: a retry is found by its items, and a map whose results were
// delivered starts anew.
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

// reachable checks that the worker has the pools of a map that goes on.
func (s *Session) reachable(pools []string) error {
	if s.handle.Entry != starter.EntryAttached {
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

// alone checks that the folder holds no other unfinished map, which would lack its task.
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

// Ended says how the session's map ended, and whether its results were delivered. Close
// deletes a folder and ID of this package's choice when all items succeeded and were
// delivered, or when the input was bad from the start.
func (s *Session) Ended(delivered bool, err error) {
	if delivered {
		s.deliver()
	}
	var ended *starter.EndedError
	switch {
	case !s.own:
	case errors.As(err, &ended) && ended.Fault.Kind == gpumux.FaultBadInput:
		s.useless = s.resultless()
	case s.made:
		s.useless = delivered && err == nil
	}
}

// resultless reports whether no item of any map of the folder has a stored result.
func (s *Session) resultless() bool {
	parts, err := filepath.Glob(filepath.Join(s.Data, "store", "maps", "*", "*", "*.parts", strings.Repeat("[0-9a-f]", 24)+".*"))
	return err == nil && len(parts) == 0
}

func (s *Session) mark(id string) string { return filepath.Join(s.Data, "delivered", id) }

func (s *Session) delivered(h *starter.Handle) bool {
	run, err := os.ReadFile(s.mark(h.ID))
	return err == nil && strings.TrimSpace(string(run)) == h.FirstRunID()
}

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

// resolve gives a map its made ID. A retry takes up the latest map of the task over these
// items, whatever its edition and options; there must be one. A new edition makes a new
// map, and people are told.
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

// earlier is the newest such map that was stopped with another edition.
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
