package slot

import (
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
	// interpreterLimit is how long a Python may take to say which program it is.
	interpreterLimit = time.Minute
)

// interpreters remembers which program a Python's name stands for.
var interpreters sync.Map

// interpreter follows a name such as python3 to the program itself. Version managers put a shell script in its place, which
// would take longer at every start than Python does. What cannot be followed is left as it is: starting it tells why.
func interpreter(ctx context.Context, name string, o Options) (string, error) {
	if name == "" {
		name = defaultInterpreter
	}
	if known, ok := interpreters.Load(name); ok {
		return known.(string), nil
	}
	limit := min(o.StartLimit, interpreterLimit)
	silent := &silentError{name, limit}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, silent)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, "-I", "-S", "-c", "import sys; print(sys.executable)")
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

// silentError says that a Python hangs before it runs anything.
type silentError struct {
	name  string
	after time.Duration
}

func (e *silentError) Error() string {
	return fmt.Sprintf("%s did not say which program it is within %s", e.name, e.after)
}

// hint is the next step.
func (e *silentError) hint() string {
	return fmt.Sprintf("run it on the worker's machine: %s -I -S -c 'import sys; print(sys.executable)'", e.name)
}
