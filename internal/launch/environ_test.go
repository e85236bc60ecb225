package launch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/launch"
)

func TestEnviron_ATaskChoosesItsThreads(t *testing.T) {
	slot := map[string]string{"OMP_NUM_THREADS": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
	for name, c := range map[string]struct {
		worker, own string
		passed, set bool
		want        any
	}{
		"the slot's":             {worker: "8", want: "1"},
		"passed on":              {worker: "8", passed: true, want: "8"},
		"the task's own":         {worker: "8", passed: true, own: "4", set: true, want: "4"},
		"none, which it manages": {worker: "8", passed: true, set: true},
		"passed on as none":      {passed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OMP_NUM_THREADS", c.worker)
			t.Setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")
			task := launch.Task{Env: map[string]string{"EMPTY": ""}}
			if c.passed {
				task.PassEnv = []string{"OMP_NUM_THREADS", "XLA_PYTHON_CLIENT_PREALLOCATE"}
			}
			if c.set {
				task.Env["OMP_NUM_THREADS"] = c.own
			}
			env := variables(task.Environ("", slot))
			require.Equal(t, c.want, env["OMP_NUM_THREADS"])
			require.Equal(t, "false", env["XLA_PYTHON_CLIENT_PREALLOCATE"], "memory is the slot's to share")
			require.Contains(t, env, "EMPTY")
		})
	}
}

// Where the slot sets none an empty one is none too.
func TestEnviron_NoEmptyNumberOfThreads(t *testing.T) {
	task := launch.Task{Env: map[string]string{"OMP_NUM_THREADS": ""}}
	require.NotContains(t, variables(task.Environ("", nil)), "OMP_NUM_THREADS")
}

func variables(pairs []string) map[string]any {
	env := map[string]any{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}
