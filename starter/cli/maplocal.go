package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/files"
	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/local"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/sharing"
	"github.com/gpumux/gpumux/workers/slot/launch"
)

// findTask finds TASK, or the command after --.
func (f *taskFlags) findTask(name string, command []string, reduce string) (*local.Task, error) {
	return local.FindTask(name, local.TaskOptions{Command: command, Output: f.output, Python: f.python, Fresh: launch.Fresh(f.fresh),
		Mode: gpumux.Mode(f.mode), PassEnv: f.passEnv, Reduce: reduce})
}

// poolsHere are the pools of a --local command. A GPU that was asked for and is not there is told.
func (a *program) poolsHere(f taskFlags) []config.Pool {
	pools, noGPU := local.Pools(f.pools, f.pool())
	for _, name := range f.pools {
		if noGPU != "" && name != "cpu" {
			a.Console.Say("pool %s runs on the CPU, for want of a GPU: %s", name, screen.OneLine(noGPU, 300))
		}
	}
	return pools
}

// inFlags says the mistakes of a configuration that flags made in terms of the flags.
func inFlags(err error) error {
	var found *config.Error
	if !errors.As(err, &found) || found.File != "" {
		return err
	}
	var m app.Mistakes
	for _, p := range found.Problems {
		flag := "TASK"
		switch field := p.Field; {
		case strings.HasSuffix(field, ".memory"):
			flag = "--memory"
		case strings.HasSuffix(field, ".reserve"):
			flag = "--reserve"
		case strings.HasSuffix(field, ".slots"):
			flag = "--slots"
		case strings.HasSuffix(field, ".devices"):
			flag = "--devices"
		case strings.HasSuffix(field, ".sharing"):
			flag = "--sharing"
		case strings.HasPrefix(field, "pools"):
			flag = "--pool"
		case strings.HasSuffix(field, ".interpreter"):
			flag = "--python"
		case strings.Contains(field, ".pass_env"):
			flag = "--pass-env"
		case strings.HasSuffix(field, ".python_dir"):
			flag = "--tasks"
		case strings.HasSuffix(field, ".command"):
			flag = "the command"
		}
		m.Add("%s: %s", flag, strings.ReplaceAll(p.Message, "sharing: ", "--sharing "))
	}
	return m.Err()
}

// mapLocally runs the map in a server and a worker of its own. It is over when its results are delivered: a map that finished
// without that is delivered by the same command, and its state stays until then.
func (a *program) mapLocally(ctx context.Context, f *mapFlags, m starter.Map, task *local.Task, out files.Output) error {
	if slices.ContainsFunc(task.Files(), func(file string) bool { return sameFile(file, f.out) }) {
		return app.Usage("--out %s is the task's own file; name another for the results", f.out)
	}
	o := a.LocalOptions(true)
	o.Data, o.Task, o.Pools, o.Headless, o.Last = f.data, task, a.poolsHere(f.taskFlags), !a.Console.Redraws(), true
	o.Start = func(ctx context.Context, s *starter.Starter, named starter.Map) (*starter.Handle, error) {
		m = named
		return a.start(ctx, s, m, f)
	}
	s, h, err := local.Map(ctx, o, m)
	if err != nil {
		return inFlags(err)
	}
	defer s.Close(a.Hard)
	conn := app.ConnectionOf(s)
	conn.Again = "the same command writes them (its state is in " + s.Data + ")"
	a.tellEntry(conn, h, m)
	conn.UI = "" // the page goes away with the server
	delivered, err := a.finish(s.Context(), conn, h, nil, out, f)
	if errors.Is(err, app.ErrInterrupted) {
		a.Console.Say("stopping; the same command goes on with map %s (its state is in %s)", h.ID, s.Data)
		if f.data == "" && h.Output != "" {
			a.Console.Say("  the results so far: `gpumux results %s --partial`", h.ID)
		}
		return app.Exit(app.ExitInterrupted)
	}
	s.Ended(delivered, err)
	if delivered && f.data == "" && f.id != "" && h.Entry == starter.Started {
		a.Console.Note("  state      %s (until you delete it)", s.Data)
	}
	return err
}

// tellEntry says how the command came to the map, and where it can be watched.
func (a *program) tellEntry(conn *app.Connection, h *starter.Handle, m starter.Map) {
	switch h.Entry {
	case starter.Continued, starter.Attached:
		a.Console.Note("going on with map %s", h.ID)
		if h.Edition != "" && m.Edition != "" && h.Edition != m.Edition {
			a.Console.Say("%s has changed since map %s was started; the results that it has already stay as they are", m.Input.Task, h.ID)
		}
	case starter.Found:
		a.Console.Note("map %s is finished; these are its results", h.ID)
	}
	if page := conn.Link(h.ID); page != "" && h.Entry != starter.Found {
		a.Console.Note("web UI while it runs: %s", page)
	}
}

// pool is what the flags say of every pool of a local worker; the flags are good.
func (f *taskFlags) pool() config.Pool {
	memory, _ := gpumux.ParseSize(f.memory)
	reserve, _ := gpumux.ParseSize(f.reserve)
	devices := gpu.Selection(f.devices)
	if f.on != "" {
		devices = gpu.Selection{f.on}
	}
	return config.Pool{Slots: f.slots, Devices: devices, Memory: memory, Reserve: reserve, Sharing: sharing.Mode(f.sharing), Mode: gpumux.Mode(f.mode)}
}
