package launch

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// passed are the names that a task process inherits from the worker. All else stays
// behind, above all credentials. A task's pass_env and env add to it.
var passed = []string{
	"PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "NVIDIA_DRIVER_CAPABILITIES",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_CACHE_HOME", "R_LIBS", "R_LIBS_USER",
}

// Threads are the variables in which a slot says how many threads a library may use. What
// follows the first needs none of its own, and an engine that pins its threads sets the
// first again: MKL_NUM_THREADS, say, would win over that.
var Threads = []string{"OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"}

// homes sets what a task finds under ~. In a home of its own it still finds the worker's
// caches and installed packages.
func (t Task) homes(env map[string]string, own string) {
	home := os.Getenv("HOME")
	if own == "" || home == "" {
		own = cmp.Or(own, home)
	} else {
		env["XDG_CACHE_HOME"] = cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache"))
		if t.Python != "" {
			env["PYTHONUSERBASE"] = cmp.Or(os.Getenv("PYTHONUSERBASE"), filepath.Join(home, ".local"))
		}
		if t.R != "" {
			env["R_LIBS_USER"] = cmp.Or(os.Getenv("R_LIBS_USER"), filepath.Join(home, "R", "%p-library", "%v"))
		}
	}
	if own != "" {
		env["HOME"] = own
	}
}

// Environ is the environment of the task's process: the allow-list, what the task passes
// on, the device's variables, and the task's own. The task's own win, except over locked
// names: no task chooses another device. Threads that are passed on win too. Home is
// HOME.
func (t Task) Environ(home string, device map[string]string) []string {
	env := map[string]string{}
	pass := func(name string) {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	for _, name := range passed {
		pass(name)
	}
	t.homes(env, home)
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "LC_") {
			pass(name)
		}
	}
	for _, name := range t.PassEnv {
		pass(name)
	}
	for name, value := range device {
		_, chosen := t.Env[name]
		if _, given := env[name]; given && slices.Contains(Threads, name) {
			chosen = true
		}
		if !chosen || locked(name) {
			env[name] = value
		}
	}
	for name, value := range t.Env {
		if _, set := device[name]; !set || !locked(name) {
			env[name] = value
		}
	}
	for _, name := range Threads {
		if env[name] == "" {
			delete(env, name) // GCC's OpenMP complains of an empty one
		}
	}
	if visible := env["CUDA_VISIBLE_DEVICES"]; t.Indices != nil && visible != "" {
		env["CUDA_VISIBLE_DEVICES"] = t.byIndex(visible)
	}
	if t.Python != "" {
		env["PYTHONUNBUFFERED"] = "1"
	}
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// byIndex turns a list of UUIDs with commas into one of indices.
func (t Task) byIndex(uuids string) string {
	names := strings.Split(uuids, ",")
	for i, uuid := range names {
		if index, known := t.Indices[uuid]; known {
			names[i] = strconv.Itoa(index)
		}
	}
	return strings.Join(names, ",")
}

// locked names belong to the slot: its device and share are not the task's to set.
func locked(name string) bool {
	return strings.HasPrefix(name, "CUDA_VISIBLE_") || name == "CUDA_DEVICE_ORDER" || strings.HasPrefix(name, "CUDA_MPS_") ||
		strings.HasPrefix(name, "GPUMUX_")
}
