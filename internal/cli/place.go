package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/screen"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

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

// pin lets a map run on the device of --on alone, which a worker has to offer.
func (f *taskFlags) pin(ctx context.Context, s *starter.Starter, in *gpumux.MapInput) error {
	if f.on == "" {
		return nil
	}
	workers, err := s.Fleet().Workers(ctx)
	if err != nil {
		return err
	}
	rungs, offered := rungsOn(workers, in.Rungs()[0], f.on)
	switch {
	case len(rungs) == 1:
		in.Ladder = rungs
		return nil
	case len(rungs) > 1:
		return app.Usage("--on %s fits %s; give more of the UUID, or one of these as --pool", f.on, strings.Join(rungs, " and "))
	case len(offered) == 0:
		return app.Usage("--on %s: no worker answers that offers pool %s", f.on, in.Rungs()[0])
	}
	return app.Usage("--on %s: no worker offers such a device in pool %s; there are %s", f.on, in.Rungs()[0], strings.Join(offered, ", "))
}

// place pins a map to --on, and checks --no-wait.
func (f *taskFlags) place(ctx context.Context, s *starter.Starter, in *gpumux.MapInput) error {
	if err := f.pin(ctx, s, in); err != nil || !f.noWait {
		return err
	}
	return checkServed(ctx, s, in.Rungs(), in.Task)
}

// rungsOn are a pool's devices that begin with name, and the names of all of them.
func rungsOn(workers []fleet.Worker, pool, name string) (rungs, offered []string) {
	for _, w := range workers {
		if w.Offer == nil {
			continue
		}
		for _, p := range w.Offer.Pools {
			if p.Name != pool {
				continue
			}
			for _, device := range p.Devices {
				offered = append(offered, device)
				rung := fmt.Sprintf("%s@%s/%s", pool, w.Offer.Host, device)
				if strings.HasPrefix(strings.ToLower(device), strings.ToLower(name)) && !slices.Contains(rungs, rung) {
					rungs = append(rungs, rung)
				}
			}
		}
	}
	return rungs, offered
}
