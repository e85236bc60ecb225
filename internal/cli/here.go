package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/screen"
	"github.com/gpumux/gpumux/workers/config"
)

// poolsHere are the pools of a worker in this process.
func poolsHere(ctx context.Context, a *app.App, f taskFlags) []config.Pool {
	pools, noGPU := local.Pools(ctx, f.input.Ladder, f.pool)
	for _, name := range f.input.Ladder {
		if noGPU != "" && name != "cpu" {
			a.Console.Say("pool %s runs on the CPU, for want of a GPU: %s", name, screen.OneLine(noGPU, 300))
		}
	}
	return pools
}

// taskHere finds the task of a command for this machine, which sees the shell's harmless
// variables by itself.
func taskHere(a *app.App, f taskFlags) (*local.Task, error) {
	f.task.PassEnv = passedHere(a, f.task.PassEnv)
	return local.FindTask(f.input.Task, f.task)
}

// passedHere adds the harmless variables of this environment to those of --pass-env, and
// says which a user may miss.
func passedHere(a *app.App, given []string) []string {
	pass, left := local.PassedOn(given)
	if len(left) > 0 {
		const most = 6
		names, flag := strings.Join(left, ", "), strings.Join(left, ",")
		if more := len(left) - most; more > 0 {
			names, flag = fmt.Sprintf("%s and %d more", strings.Join(left[:most], ", "), more), "NAME,…"
		}
		a.Console.Note("the task does not see %s of this environment; --pass-env %s passes them on", names, flag)
	}
	return pass
}

// flagsHere has the flag that sets a field of the worker's configuration.
var flagsHere = map[string]string{"memory": "--memory", "reserve": "--reserve", "slots": "--slots", "devices": "--devices", "sharing": "--sharing",
	"interpreter": "--python", "pass_env": "--pass-env", "start": "--start-timeout", "python_dir": "--tasks", "command": "the command"}

// inFlags names flags in the mistakes of a configuration that was made of flags.
func inFlags(err error) error {
	var found *config.Error
	if !errors.As(err, &found) || found.File != "" {
		return err
	}
	var m app.Mistakes
	for _, p := range found.Problems {
		flag := "TASK"
		if strings.HasPrefix(p.Field, "pools") {
			flag = "--pool"
		}
		field := strings.TrimRight(p.Field[strings.LastIndex(p.Field, ".")+1:], "[]0123456789")
		m.Add("%s: %s", cmp.Or(flagsHere[field], flag), strings.ReplaceAll(p.Message, "sharing: ", "--sharing "))
	}
	return m.Err()
}
