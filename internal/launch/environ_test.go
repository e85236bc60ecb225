package launch_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/launch"
)

// Who decides a variable: the worker's environment, the slot, what the task has passed
// on, and its own env. An empty want is a variable that is not set.
func TestEnviron_WhoDecides(t *testing.T) {
	slot := map[string]string{
		"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8G", "OMP_NUM_THREADS": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true",
	}
	for name, c := range map[string]struct {
		variable, worker string
		passed           bool
		env              map[string]string
		want             string
	}{
		"inherited by all":                 {variable: "LANG", worker: "C", want: "C"},
		"a locale":                         {variable: "LC_TIME", worker: "C", want: "C"},
		"a credential":                     {variable: "AWS_SECRET_ACCESS_KEY", worker: "x"},
		"a credential that is passed on":   {variable: "AWS_SECRET_ACCESS_KEY", worker: "x", passed: true, want: "x"},
		"its own over what is passed on":   {variable: "HF_HOME", worker: "/a", passed: true, env: map[string]string{"HF_HOME": "/b"}, want: "/b"},
		"the slot's over what is passed":   {variable: "TF_FORCE_GPU_ALLOW_GROWTH", worker: "false", passed: true, want: "true"},
		"its own over the slot's":          {variable: "TF_FORCE_GPU_ALLOW_GROWTH", env: map[string]string{"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, want: "false"},
		"the slot's threads":               {variable: "OMP_NUM_THREADS", worker: "8", want: "1"},
		"threads that are passed on":       {variable: "OMP_NUM_THREADS", worker: "8", passed: true, want: "8"},
		"its own threads":                  {variable: "OMP_NUM_THREADS", worker: "8", passed: true, env: map[string]string{"OMP_NUM_THREADS": "4"}, want: "4"},
		"no threads, which it manages":     {variable: "OMP_NUM_THREADS", env: map[string]string{"OMP_NUM_THREADS": ""}},
		"no threads that are passed on":    {variable: "OMP_NUM_THREADS", passed: true},
		"the slot's device over its own":   {variable: "CUDA_VISIBLE_DEVICES", env: map[string]string{"CUDA_VISIBLE_DEVICES": "7"}, want: "GPU-b,GPU-a"},
		"the slot's share over its own":    {variable: "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", env: map[string]string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "x"}, want: "0=8G"},
		"the map's argument, as its own":   {variable: "GPUMUX_ARG", env: map[string]string{"GPUMUX_ARG": "1"}, want: "1"},
		"the slot's home":                  {variable: "HOME", worker: "/root", want: "/home"},
		"the worker's home":                {variable: "HOME", worker: "/root", passed: true, want: "/root"},
		"the worker's caches":              {variable: "XDG_CACHE_HOME", want: "/root/.cache"},
		"the worker's packages for Python": {variable: "PYTHONUSERBASE", want: "/root/.local"},
		"output of Python at once":         {variable: "PYTHONUNBUFFERED", want: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", "/root")
			t.Setenv("XDG_CACHE_HOME", "")
			t.Setenv(c.variable, c.worker)
			task := launch.Task{Python: "a.py:f", Env: c.env}
			if c.passed {
				task.PassEnv = []string{c.variable}
			}
			found := ""
			for _, pair := range task.Environ("/home", slot) {
				if name, value, _ := strings.Cut(pair, "="); name == c.variable {
					found = value
					require.NotEmpty(t, value, "no variable is set to nothing here")
				}
			}
			require.Equal(t, c.want, found)
		})
	}
}

// What the slot decides is refused in a task's env and pass_env, in every pool.
func TestRefused(t *testing.T) {
	for name, why := range map[string]string{
		"CUDA_VISIBLE_DEVICES": "is set by the slot", "CUDA_DEVICE_ORDER": "is set by the slot", "GPUMUX_ARG": "is set by the slot",
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "choose devices and sharing in the pool", "XLA_PYTHON_CLIENT_MEM_FRACTION": "use that name",
		"A B": "is no name", "": "is no name", "OMP_NUM_THREADS": "", "XLA_CLIENT_MEM_FRACTION": "", "CUDA_LAUNCH_BLOCKING": "",
	} {
		require.Equal(t, why == "", launch.Refused(name) == "", name)
		require.Contains(t, launch.Refused(name), why)
	}
}

func TestSlot_Variables(t *testing.T) {
	const gib = 1 << 30
	device := map[string]string{"CUDA_VISIBLE_DEVICES": "a", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
	for name, c := range map[string]struct {
		slot launch.Slot
		want map[string]string
	}{
		"a device of its own, without a budget": {launch.Slot{Group: "a"}, device},
		"no budget, but others": {launch.Slot{Group: "a", Shared: true}, map[string]string{
			"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_CLIENT_MEM_FRACTION": ""}},
		"a budget": {launch.Slot{Group: "a", Shared: true, Room: 7 * gib, Smallest: 80 * gib}, map[string]string{
			"XLA_CLIENT_MEM_FRACTION": ".0875", "CUPY_GPU_MEMORY_LIMIT": "7516192768", "JULIA_CUDA_HARD_MEMORY_LIMIT": "7516192768",
			"JULIA_CUDA_SOFT_MEMORY_LIMIT": "6576668672"}},
		"joined GPUs, of which the smaller one bounds": {launch.Slot{Group: "a,b", Room: 9 * gib, Smallest: 40 * gib}, map[string]string{
			"CUDA_VISIBLE_DEVICES": "a,b", "XLA_CLIENT_MEM_FRACTION": ".2250"}},
		"a device of unknown size": {launch.Slot{Group: "x", Room: gib}, map[string]string{
			"CUPY_GPU_MEMORY_LIMIT": "1073741824", "XLA_CLIENT_MEM_FRACTION": ""}},
		"the CPU, which hides all GPUs": {launch.Slot{Shared: true}, map[string]string{
			"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_FORCE_GPU_ALLOW_GROWTH": ""}},
		"a shared device": {launch.Slot{Group: "a", Sharing: map[string]string{"CUDA_MPS_PIPE_DIRECTORY": "/p"}},
			map[string]string{"CUDA_MPS_PIPE_DIRECTORY": "/p"}},
		// An engine that pins its threads sets the first again, but not MKL's own, which wins.
		"more slots than processors": {launch.Slot{Beside: 1000}, map[string]string{
			"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "VECLIB_MAXIMUM_THREADS": "1", "MKL_NUM_THREADS": "", "OPENBLAS_NUM_THREADS": ""}},
		"two slots":     {launch.Slot{Beside: 2}, map[string]string{"OMP_NUM_THREADS": strconv.Itoa(max(1, runtime.GOMAXPROCS(0)/2))}},
		"the only slot": {launch.Slot{Beside: 1}, map[string]string{"OMP_NUM_THREADS": ""}},
	} {
		env := c.slot.Variables()
		for variable, want := range c.want {
			require.Equal(t, want, env[variable], "%s: %s", name, variable)
		}
	}
	require.Equal(t, device, launch.Slot{Group: "a"}.Variables(), "nothing else")
}
