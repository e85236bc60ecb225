package cli

import (
	"errors"
	"strings"

	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/local"
	"github.com/gpumux/gpumux/workers/config"
)

// poolsHere are the pools of a --local command. A GPU that was asked for and is not there is told.
func poolsHere(a *app.App, f taskFlags) []config.Pool {
	pools, noGPU := local.Pools(f.input.Ladder, f.pool)
	for _, name := range f.input.Ladder {
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
