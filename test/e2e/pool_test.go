package e2e

import (
	"maps"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

// cpuPool is the only pool of a worker, and what the worker serves there.
type cpuPool struct {
	Pool     string
	Slots    int
	Tasks    map[string]config.Task
	TasksDir string
	Dir      string
	Store    string
}

func onCPU(p cpuPool) config.Config {
	c := config.Config{Store: p.Store, Dir: p.Dir, Tasks: map[string]config.Task{},
		Pools: []config.Pool{{Name: p.Pool, Devices: gpu.Selection{"cpu"}, Slots: config.Slots(p.Slots)}}}
	maps.Copy(c.Tasks, p.Tasks)
	if p.TasksDir != "" {
		c.Tasks["*"] = config.Task{PythonDir: p.TasksDir}
	}
	return c
}
