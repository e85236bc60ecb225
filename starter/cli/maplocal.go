package cli

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

// mapLocally runs the map in a server and a worker of its own. It is over when its results are delivered: a map that finished
// without that is delivered by the same command, and its state stays until then.
func (a *app) mapLocally(ctx context.Context, f *mapFlags, m starter.Map, local localTask, out output) error {
	for _, file := range local.code.Files() {
		if sameFile(file, f.out) {
			return usage("--out %s is the task's own file; name another for the results", f.out)
		}
	}
	pools, err := a.poolsHere(f.taskFlags)
	if err != nil {
		return err
	}
	m.Input.Ladder = poolNames(pools)
	data, err := a.localPlace(f, &m)
	if err != nil {
		return err
	}
	s, err := a.open(ctx, sessionOptions{
		data: data, owner: m.ID, headless: !a.console.terminal(), pools: pools, dir: local.dir,
		tasks: local.tasks(), stopTimeout: time.Second, calm: true,
	})
	if err != nil {
		return err
	}
	useless := false
	defer func() {
		s.close()
		if useless {
			s.remove()
		}
		s.hold.release()
	}()
	if err := s.alone(ctx, m.ID); err != nil {
		return err
	}
	// Before anything of it is handed out, which would fail and end the map.
	if last, err := s.Open(ctx, m.ID); err == nil {
		if err := last.Suits(m); err != nil {
			return err
		}
	}
	ctx, err = s.serve(ctx)
	if err != nil {
		return err
	}
	if f.id == "" {
		if err := s.unname(ctx, &m); err != nil {
			return err
		}
	}
	s.again = "the same command writes them (its state is in " + s.data + ")"
	h, err := a.start(ctx, &s.connection, m, f)
	if err != nil {
		return err
	}
	if f.data == "" {
		s.note(h, starter.Fingerprint(m.Input, m.Scope, itemsOf(m)))
	}
	if err := a.reachable(ctx, h, m.Input.Ladder); err != nil {
		return err
	}
	s.tellEntry(h, m)
	delivered, err := a.finish(ctx, &s.connection, h, nil, out, f)
	if errors.Is(err, errInterrupted) {
		a.console.say("stopping; the same command goes on with map %s (its state is in %s)", h.ID, s.data)
		if f.data == "" && h.Output != "" {
			a.console.say("  the results so far: `gpumux results %s --partial`", h.ID)
		}
		return exitError(ExitInterrupted)
	}
	if delivered {
		s.deliver(h)
	}
	var failed *starter.MapFailed
	switch {
	case f.data != "":
	case errors.As(err, &failed) && failed.Fault.Kind == gpumux.BadInput:
		useless = s.fresh && s.resultless()
	case f.id == "":
		useless = delivered && err == nil
	case delivered && h.Entry == starter.Started:
		a.console.note("  state      %s (until you delete it)", s.data)
	}
	return err
}

// localPlace names a map that has no ID, and the folder of its state.
func (a *app) localPlace(f *mapFlags, m *starter.Map) (data string, err error) {
	switch {
	case m.ID != "":
	case m.Retry && f.data != "":
		m.ID = starter.Identify(m.Input, m.Scope, itemsOf(*m), m.Edition)
	default:
		if m.ID, err = a.resolve(*m); err != nil {
			return "", err
		}
	}
	if f.data != "" {
		return f.data, nil
	}
	return stateFolder("local", m.ID)
}

// unname takes the ID off a map that is to run anew, since its results were delivered, or that is to be found by its items.
func (s *session) unname(ctx context.Context, m *starter.Map) error {
	if m.Retry {
		m.ID = "" // the map that is here, whatever its options were
		return nil
	}
	last, err := s.Open(ctx, m.ID)
	var none *starter.NotFound
	switch {
	case errors.As(err, &none):
	case err != nil:
		return unavailableError{err}
	case s.delivered(last):
		m.ID = ""
	}
	return nil
}

// tellEntry says how the command came to the map, and where it can be watched.
func (s *session) tellEntry(h *starter.Handle, m starter.Map) {
	to := s.app.console
	switch h.Entry {
	case starter.Continued, starter.Attached:
		to.note("going on with map %s", h.ID)
		if h.Edition != "" && m.Edition != "" && h.Edition != m.Edition {
			to.say("%s has changed since map %s was started; the results that it has already stay as they are", m.Input.Task, h.ID)
		}
	case starter.Found:
		to.note("map %s is finished; these are its results", h.ID)
	}
	if page := s.link(h.ID); page != "" && h.Entry != starter.Found {
		to.note("web UI while it runs: %s", page)
	}
	s.ui = "" // the page goes away with the server
}

// reachable makes sure that a map which goes on has a pool of this command's worker for each of its own.
func (a *app) reachable(ctx context.Context, h *starter.Handle, pools []string) error {
	if h.Entry != starter.Attached {
		return nil
	}
	own, err := h.Input(ctx)
	if err != nil {
		return err
	}
	for _, pool := range own.Rungs() {
		if !slices.Contains(pools, pool) {
			return usage("map %s goes on with the pools that it was started with; give --pool %s", h.ID, strings.Join(own.Rungs(), ","))
		}
	}
	return nil
}

// resultless reports whether no item of any map of the folder has a stored result.
func (s *session) resultless() bool {
	parts, err := filepath.Glob(filepath.Join(s.data, "store", "maps", "*", "*", "*.parts", strings.Repeat("[0-9a-f]", 24)+".*"))
	return err == nil && len(parts) == 0
}

// alone makes sure that the data folder holds no other unfinished map, which this worker would fail for want of its task.
func (s *session) alone(ctx context.Context, id string) error {
	maps, err := s.List(ctx, starter.ListOptions{Running: true})
	if err != nil {
		return unavailableError{err}
	}
	for _, m := range maps {
		if m.ID != id {
			return usage("--data %s holds the unfinished map %s of task %s; give that map's command again first (with --id %s if its task has changed), or another --data",
				s.data, m.ID, m.Task, m.ID)
		}
	}
	return nil
}
