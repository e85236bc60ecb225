package local

import (
	"cmp"
	"context"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/gpumux/gpumux/workers/config"
)

const probing = 2 * time.Minute

// pythonVersion matches a Python's answer, perhaps behind words of a script.
var pythonVersion = regexp.MustCompile(`(?m)^\d+\.\d+\.\d+ .*$`)

// CheckPython starts an interpreter. Fix says what to do where tasks cannot run in it,
// else it is empty; said is its version and path, or what came instead.
func CheckPython(ctx context.Context, python string) (said, fix string) {
	ctx, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, "-c",
		"import sys; print('%d.%d.%d' % sys.version_info[:3], sys.executable); sys.exit(sys.version_info < (3, 9))").CombinedOutput()
	version := pythonVersion.Find(out)
	said = cmp.Or(string(version), string(out))
	var exit *exec.ExitError
	switch {
	case version != nil && err != nil:
		fix = "gpumux needs Python 3.9 or newer; give another Python"
	case version != nil:
	case err == nil, errors.As(err, &exit) && len(out) > 0:
		fix = "this is not how Python 3.9 or newer answers; give another Python"
	default:
		said, fix = err.Error(), "install Python 3.9 or newer, or give another Python; commands need none"
	}
	const most = 200
	said = strings.Join(strings.Fields(said), " ")
	if long := []rune(said); len(long) > most {
		said = string(long[:most-1]) + "…"
	}
	return said, fix
}

func startable(ctx context.Context, tasks map[string]config.Task) error {
	tried := map[string]bool{"": true}
	for _, task := range tasks {
		python := task.Interpreter
		if tried[python] {
			continue
		}
		tried[python] = true
		if said, fix := CheckPython(ctx, python); fix != "" {
			return mistake("Python %s: %s; %s", python, cmp.Or(said, "it said nothing when asked for its version"), fix)
		}
	}
	return nil
}
