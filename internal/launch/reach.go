package launch

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const reachLimit = time.Minute

// HangError says that a file system which a start needs did not answer in time. The task
// is not to blame.
type HangError struct{ message string }

func (e *HangError) Error() string { return e.message }

func (e *HangError) Hint() string {
	return "see that the file system of the task's program and folder is there (a network mount whose server is away?); " +
		"the task is tried again by itself"
}

// Code is the code of the task. Reading it may block.
func (t Task) Code() Code {
	command := t.Command
	if len(command) == 0 {
		command = t.Program
	}
	return Code{Dir: t.Dir, Target: t.Target(), Command: command}
}

// Edition is the edition of the task's code as its files are now. It is a *HangError if
// the file systems of the task's program and folder do not answer within limit, at most a
// minute. A start that hangs there would hold up the whole program: Go's collector waits
// for a thread that forks.
func (t Task) Edition(ctx context.Context, limit time.Duration) (string, error) {
	limit = min(limit, reachLimit)
	code := t.Code()
	program := t.interpreter()
	if len(code.Command) > 0 {
		program = code.Command[0]
	}
	where := program
	if t.Dir != "" {
		where += " or of the folder " + t.Dir
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &HangError{fmt.Sprintf("the file system of %s did not answer for %s", where, limit)})
	defer cancel()
	found := make(chan string, 1)
	go func() {
		touch(program, t.Dir)
		found <- code.Edition()
	}()
	select {
	case text := <-found:
		return text, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// touch reads what a start reads. Opening anything but a regular file could wait.
func touch(program, dir string) {
	path, err := exec.LookPath(program)
	if err != nil {
		path = program
	}
	if dir != "" {
		os.Stat(dir)
		if filepath.Base(program) != program && !filepath.IsAbs(program) {
			path = filepath.Join(dir, program)
		}
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	if file, err := os.Open(path); err == nil {
		io.CopyN(io.Discard, file, 4096)
		file.Close()
	}
}
