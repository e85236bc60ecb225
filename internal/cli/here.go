package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/workers/config"
)

// optionsHere are for a worker in this process that runs the task of a command.
func (f taskFlags) optionsHere(ctx context.Context, a *app) (local.Options, error) {
	o := a.localOptions(true)
	f.task.PassEnv = passedHere(a, f.task.PassEnv)
	var err error
	if o.Task, err = local.FindTask(f.input.Task, f.task); err != nil {
		return o, err
	}
	names := f.input.Ladder
	noGPU, err := o.Place(ctx, names, f.pool)
	why, _, _ := strings.Cut(noGPU, "; ") // what follows is for a worker's file
	if noGPU != "" && len(names) == 0 {
		a.console.Note("note: the CPU runs it: %s", report.OneLine(why, 300))
	}
	for _, name := range names {
		if noGPU != "" && name != "cpu" {
			a.console.Say("note: pool %s runs on the CPU, for want of a GPU: %s", name, report.OneLine(noGPU, 300))
		}
	}
	return o, err
}

// passedHere adds the harmless variables of this environment to those of --pass-env, and
// says which a user may miss.
func passedHere(a *app, asked []string) []string {
	pass, left := local.PassedOn(asked)
	if len(left) > 0 {
		const limit = 6
		names, flag := strings.Join(left, ", "), strings.Join(left, ",")
		if more := len(left) - limit; more > 0 {
			names, flag = fmt.Sprintf("%s and %d more", strings.Join(left[:limit], ", "), more), "NAME,…"
		}
		a.console.Note("note: the task does not see %s of this environment; to pass on: --pass-env %s", names, flag)
	}
	return pass
}

// flagsHere has the flag that sets a field of the worker's configuration.
var flagsHere = map[string]string{"memory": "--memory", "reserve": "--reserve", "slots": "--slots", "gpus_per_slot": "--gpus-per-slot", "devices": "--devices", "sharing": "--sharing",
	"interpreter": "--python", "pass_env": "--pass-env", "start": "--start-timeout", "visible_devices": "--visible-devices", "python_dir": "--tasks", "command": "the command"}

// inFlags names flags in the mistakes of a configuration that was made of flags.
func inFlags(err error) error {
	var found *config.Error
	if !errors.As(err, &found) || found.File != "" {
		return err
	}
	var m mistakes
	for _, p := range found.Problems {
		flag := "TASK"
		if strings.HasPrefix(p.Field, "pools") {
			flag = "--pool"
		}
		field := strings.TrimRight(p.Field[strings.LastIndex(p.Field, ".")+1:], "[]0123456789")
		m.add("%s: %s", cmp.Or(flagsHere[field], flag), strings.ReplaceAll(p.Message, "sharing: ", "--sharing "))
	}
	return m.err()
}
