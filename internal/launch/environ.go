package launch

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
)

// passed are the names that a task process inherits from the worker. All else stays
// behind, above all credentials. A task's pass_env and env add to it.
var passed = []string{
	"PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "NVIDIA_DRIVER_CAPABILITIES",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_CACHE_HOME", "R_LIBS", "R_LIBS_USER",
}

// threads are the variables in which a slot says how many threads a library may use. What
// follows the first needs none of its own, and an engine that pins its threads sets the
// first again: MKL_NUM_THREADS, say, would win over that.
var threads = []string{"OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"}

// homes sets what a task finds under ~. In a home of its own it still finds the worker's
// caches and installed packages.
func (t Task) homes(env map[string]string, taskHome string) {
	home := os.Getenv("HOME")
	if taskHome == "" || home == "" {
		taskHome = cmp.Or(taskHome, home)
	} else {
		env["XDG_CACHE_HOME"] = cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache"))
		if t.Python != "" {
			env["PYTHONUSERBASE"] = cmp.Or(os.Getenv("PYTHONUSERBASE"), filepath.Join(home, ".local"))
		}
		if t.R != "" {
			env["R_LIBS_USER"] = cmp.Or(os.Getenv("R_LIBS_USER"), filepath.Join(home, "R", "%p-library", "%v"))
		}
	}
	if taskHome != "" {
		env["HOME"] = taskHome
	}
}

// Environ is the environment of the task's process; docs/tasks.md has the table. Later
// parts win: what all tasks inherit, the home, pass_env, the slot, env. But a number of
// threads that is passed on wins over the slot's, and the slot's device over env.
func (t Task) Environ(home string, slot map[string]string) []string {
	env := map[string]string{}
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); slices.Contains(passed, name) || strings.HasPrefix(name, "LC_") {
			env[name] = value
		}
	}
	t.homes(env, home)
	for _, name := range t.PassEnv {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	for name, value := range slot {
		if _, set := env[name]; !set || !slices.Contains(threads, name) {
			env[name] = value
		}
	}
	for name, value := range t.Env {
		if _, set := slot[name]; !set || !locked(name) {
			env[name] = value
		}
	}
	for _, name := range threads {
		if env[name] == "" {
			delete(env, name) // GCC's OpenMP complains of an empty one
		}
	}
	if t.Python != "" {
		env["PYTHONUNBUFFERED"] = "1"
	}
	if t.ExplainOOM {
		env["GPUMUX_EXPLAIN_OOM"] = "1"
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// locked names belong to the slot: its device and share are not the task's to set.
func locked(name string) bool {
	return slices.ContainsFunc([]string{"CUDA_VISIBLE_", "CUDA_DEVICE_ORDER", "CUDA_MPS_", "GPUMUX_"},
		func(begin string) bool { return strings.HasPrefix(name, begin) })
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Refused says why no task may set a variable or have it passed on, or is empty.
func Refused(name string) string {
	switch {
	case !variable.MatchString(name):
		return fmt.Sprintf("%q is no name of a variable", name)
	case locked(name):
		return name + " is set by the slot; leave it out, and choose devices and sharing in the pool"
	case name == "XLA_PYTHON_CLIENT_MEM_FRACTION":
		return "XLA refuses " + name + " beside XLA_CLIENT_MEM_FRACTION, which the slot sets; use that name"
	}
	return ""
}

// Slot is what decides the variables that a slot sets.
type Slot struct {
	// Group are the UUIDs of its GPUs with commas; empty: it computes on the CPU.
	Group string
	// Beside is how many slots share the processors, this one included.
	Beside int
	// Shared says that others use the devices too, or that the slot has a budget.
	Shared bool
	// Room is a framework's share of each device; 0: no limit. Smallest is the memory of the
	// smallest one; 0: unknown.
	Room     gpumux.Size
	Smallest uint64
	Sharing  map[string]string
}

func (s Slot) Variables() map[string]string {
	env := map[string]string{}
	if s.Beside > 1 {
		for _, name := range threads {
			env[name] = strconv.Itoa(max(1, runtime.GOMAXPROCS(0)/s.Beside))
		}
	}
	if s.Group == "" {
		env["CUDA_VISIBLE_DEVICES"], env["JAX_PLATFORMS"] = "", "cpu" // no GPU by mistake
	} else {
		// By UUID, so that the same name means the same device in every tool.
		env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"] = s.Group, "PCI_BUS_ID"
		if s.Shared {
			// Without these the first slot takes most of the device at its start.
			env["XLA_PYTHON_CLIENT_PREALLOCATE"], env["TF_FORCE_GPU_ALLOW_GROWTH"] = "false", "true"
		}
		s.limit(env)
	}
	maps.Copy(env, s.Sharing)
	return env
}

// limit sets the frameworks' own limits per device. The task process, which knows the
// room, limits the frameworks that need code for it.
func (s Slot) limit(env map[string]string) {
	if s.Room == 0 {
		return
	}
	env["CUPY_GPU_MEMORY_LIMIT"] = strconv.FormatInt(int64(s.Room), 10)
	env["JULIA_CUDA_HARD_MEMORY_LIMIT"] = strconv.FormatInt(int64(s.Room), 10)
	// Above this CUDA.jl gives cached memory back by itself; no trim reaches it.
	env["JULIA_CUDA_SOFT_MEMORY_LIMIT"] = strconv.FormatInt(int64(s.Room-s.Room/8), 10)
	if s.Smallest == 0 {
		return
	}
	fraction := max(1, int64(float64(s.Room)/float64(s.Smallest)*10000))
	text := strconv.FormatFloat(float64(min(fraction, 10000))/10000, 'f', 4, 64)
	env["XLA_CLIENT_MEM_FRACTION"] = strings.TrimPrefix(text, "0")
}
