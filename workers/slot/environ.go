package slot

import (
	"maps"
	"os"
	"slices"
	"strings"
)

// passed are the names that a task process inherits from the worker. Everything else stays behind, above all the worker's
// credentials; a task's own pass_env and env add to it.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_CACHE_HOME",
	"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "NVIDIA_DRIVER_CAPABILITIES", "SSL_CERT_FILE", "SSL_CERT_DIR",
}

// environ is the whole environment of a task process: the allow-list, then the task's names, then the device's, so that no
// task can choose another device.
func environ(task Task, device map[string]string, tokens map[string]string) []string {
	env := map[string]string{}
	pass := func(name string) {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	for _, name := range passed {
		pass(name)
	}
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "LC_") {
			pass(name)
		}
	}
	for _, name := range task.PassEnv {
		pass(name)
	}
	for name, value := range device {
		if _, chosen := task.Env[name]; !chosen || locked(name) {
			env[name] = value
		}
	}
	for name, value := range task.Env {
		if _, set := device[name]; !set || !locked(name) {
			env[name] = value
		}
	}
	if len(task.Command) == 0 && len(task.Program) == 0 {
		env["PYTHONUNBUFFERED"] = "1"
	}
	maps.Copy(env, tokens)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// locked names belong to the slot: which device it sits on is not the task's to say.
func locked(name string) bool {
	return strings.HasPrefix(name, "CUDA_VISIBLE_") || name == "CUDA_DEVICE_ORDER" || strings.HasPrefix(name, "GPUMUX_")
}
