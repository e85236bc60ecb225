package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	defaultInterpreter = "python3"
	defaultRscript     = "Rscript"
	// interpreterLimit is how long a Python may take to say which program it is.
	interpreterLimit = time.Minute
)

// interpreters remembers which program a Python's name stands for.
var interpreters sync.Map

// Argv are the words that start the task's process: its own program, or its Python or R
// with its runtime, a main.py or main.R. It waits for the Python to say which program it
// is, no longer than limit, and a minute; the error is a *HangError then.
func (t Task) Argv(ctx context.Context, limit time.Duration, python, r string) ([]string, error) {
	switch {
	case t.R != "":
		// A Python within R takes its limits from the other runtime.
		return []string{t.interpreter(), "--no-save", r, python}, nil
	case t.Python == "":
		return t.Program, nil
	}
	path, err := interpreter(ctx, t.interpreter(), min(limit, interpreterLimit))
	return []string{path, python}, err
}

// interpreter is the name or path of the task's Python or Rscript.
func (t Task) interpreter() string {
	if t.R != "" {
		return cmp.Or(t.Interpreter, defaultRscript)
	}
	return cmp.Or(t.Interpreter, defaultInterpreter)
}

// interpreter follows a name such as python3 to the program itself: version managers put
// a slow shell script there. What cannot be followed stays: starting it tells why.
func interpreter(ctx context.Context, name string, limit time.Duration) (string, error) {
	if known, ok := interpreters.Load(name); ok {
		return known.(string), nil
	}
	const ask = "import sys; print(sys.executable)"
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &HangError{
		message: fmt.Sprintf("%s did not say which program it is within %s", name, limit),
		Hint:    fmt.Sprintf("run it on the worker's machine: %s -I -S -c '%s'", name, ask),
	})
	defer cancel()
	cmd := exec.CommandContext(ctx, name, "-I", "-S", "-c", ask)
	cmd.Env = HelperEnviron()
	cmd.WaitDelay = time.Second // what it started may hold its output
	out, err := cmd.Output()
	path := strings.TrimSpace(string(out))
	switch {
	case ctx.Err() != nil && err != nil:
		return "", context.Cause(ctx)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay) || path == "":
		return name, nil
	}
	interpreters.Store(name, path)
	return path, nil
}
