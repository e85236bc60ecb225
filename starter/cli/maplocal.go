package cli

import (
	"context"
	"errors"
	"path/filepath"
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
	if m.ID == "" {
		m.ID = a.resolve(m)
	}
	data := f.data
	if data == "" {
		if data, err = stateFolder("local", m.ID); err != nil {
			return err
		}
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
		last, err := s.Open(ctx, m.ID)
		var none *starter.NotFound
		switch {
		case errors.As(err, &none):
		case err != nil:
			return unavailableError{err}
		case s.delivered(last) && !m.Retry:
			m.ID = "" // so that it runs anew
		}
	}
	s.again = "the same command writes them (its state is in " + s.data + ")"
	h, err := a.start(ctx, &s.connection, m, f)
	if err != nil {
		return err
	}
	if f.data == "" {
		s.note(h.ID)
	}
	switch h.Entry {
	case starter.Continued, starter.Attached:
		a.console.note("going on with map %s", h.ID)
		if h.Edition != "" && m.Edition != "" && h.Edition != m.Edition {
			a.console.say("%s has changed since map %s was started; the items that succeeded stay as they are", m.Input.Task, h.ID)
		}
	case starter.Found:
		a.console.note("map %s is finished; these are its results", h.ID)
	}
	if page := s.link(h.ID); page != "" && h.Entry != starter.Found {
		a.console.note("web UI while it runs: %s", page)
	}
	s.ui = "" // the page goes away with the server
	delivered, err := a.finish(ctx, &s.connection, h, nil, out, f)
	if errors.Is(err, errInterrupted) {
		a.console.say("stopping; the same command goes on with map %s (its state is in %s)", h.ID, s.data)
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

// resultless says that no item of any map of the folder has a stored result.
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
