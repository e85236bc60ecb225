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
	if err := o.fill(ctx, m.Input.Mode); err != nil {
		return nil, nil, err
	}
	o.Task.put(m)
	if m.Input.Stages == nil {
		m.Input.Ladder = nil
		for _, pool := range o.Pools {
			m.Input.Ladder = append(m.Input.Ladder, pool.Name)
		}
	}
	made := m.ID == ""
	var states []State
	if made || o.Out != "" {
		if states, err = States(); err != nil {
			return nil, nil, err
		}
	}
	if made {
		if m.ID, err = o.resolve(*m, states); err != nil {
			return nil, nil, err
		}
	}
	if err := o.checkOut(m.ID, states); err != nil {
		return nil, nil, err
	}
	if o.Data, err = Folder("local", m.ID); err != nil {
		return nil, nil, err
	}
	s, err := open(ctx, o, m)
	if err != nil {
		return nil, nil, err
	}
	s.note.Made = made
	s.Keeps = slices.ContainsFunc(m.Input.Stages, func(stage gpumux.Stage) bool { return stage.Keep })
	if err := s.start(*m); err != nil {
		s.Close(context.WithoutCancel(ctx))
		return nil, nil, err
	}
	if o.Workers != nil {
		s.watching.Go(s.startWorkers)
	}
	return s, s.handle, nil
}

// checkOut refuses the file of another map that runs, and says of one that was stopped.
func (o *Options) checkOut(id string, states []State) error {
	file, none := os.Stat(o.Out)
	for _, s := range states {
		switch {
		case s.ID == id || o.Out == "" || s.Out != o.Out:
		case s.State == "running":
			return mistake("map %s runs and will write %s; wait for it, or give another file with --out", s.ID, s.Out)
		case s.State == "interrupted" && (none != nil || file.ModTime().Before(s.Used)): // else others have written it since
			o.Say(fmt.Sprintf("map %s was stopped before it wrote %s, and this is another map; `gpumux results %s --partial` has what it finished", s.ID, s.Out, s.ID))
		}
	}
	return nil
}

func (s *Session) start(m starter.Map) (err error) {
	if s.note.Made {
		if err := s.unname(&m); err != nil {
			return err
		}
	}
	if s.handle, err = s.Start(s.ctx, m); err != nil {
		return err
	}
	s.note.ID, s.note.Output, s.note.Command, s.note.Out = s.handle.ID, s.handle.Output, s.o.Command, s.o.Out
	_, s.note.Fingerprint = m.Identify()
	s.write()
	return s.reachable(m.Input.Pools())
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
	case stateAt(s.Data).Delivered == last.FirstRunID(), last.Edition != m.Edition:
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
	for _, pool := range in.Pools() {
		if !slices.Contains(pools, pool) {
			return mistake("map %s goes on with the pools that it was started with; give the pools %s", s.handle.ID, strings.Join(in.Pools(), ","))
		}
	}
	return nil
}

// Ended says how the session's map ended, and whether its results were delivered. Close
// deletes the folder when nothing in it is of use any more: all items succeeded and were
// delivered, and its ID is of this package's choice, or the input was bad from the start.
// Workers of other hosts end when they find no connection file.
func (s *Session) Ended(delivered bool, err error) {
	if delivered {
		s.note.Delivered = s.handle.FirstRunID()
		s.write()
	}
	if s.File != "" {
		s.over.Store(true)
		_ = os.Remove(s.File)
	}
	var ended *starter.EndedError
	bad := errors.As(err, &ended) && ended.Fault.Kind == gpumux.FaultBadInput
	s.useless = bad && s.resultless() || s.note.Made && delivered && err == nil && !s.Keeps
}

// resultless reports whether no item of any map of the folder has a stored result.
func (s *Session) resultless() bool {
	parts, err := filepath.Glob(filepath.Join(s.Data, "store", "maps", "*", "*", "*.parts", strings.Repeat("[0-9a-f]", 24)+".*"))
	return err == nil && len(parts) == 0
}

// resolve gives a map its made ID. A retry takes up the latest map of the task over these
// items, whatever its edition and options; there must be one. A new edition makes a new
// map, and people read which one was stopped.
func (o *Options) resolve(m starter.Map, states []State) (string, error) {
	id, fingerprint := m.Identify()
	if slices.ContainsFunc(states, func(s State) bool { return s.ID == id }) {
		return id, nil
	}
	edition, _, _ := strings.Cut(m.Edition, "-") // of the first stage
	base, made := strings.CutSuffix(id, "-"+edition)
	var other string
	for _, s := range states {
		switch {
		case m.Retry && s.Fingerprint == fingerprint:
			return s.ID, nil
		case other == "" && made && s.Delivered == "" && strings.HasPrefix(s.ID, base+"-") && len(s.ID) == len(id):
			other = s.ID
		}
	}
	if m.Retry {
		return "", mistake("there is no map of task %s over these items to retry, and a local map whose items all succeeded leaves nothing behind; "+
			"without a retry it is started", m.Input.Name())
	}
	if other != "" {
		o.Say(fmt.Sprintf("the files of task %s have changed since map %s was stopped, so this is a new map; "+
			"to go on with that one, put them back as they were and give the same command", m.Input.Steps()[0].Task, other))
	}
	return id, nil
}
