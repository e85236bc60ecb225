package launch

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpumux/gpumux/internal/edition"
)

// reachLimit is how long the file system of a task's files may take to answer.
const reachLimit = time.Minute

// HangError says that a file system that a start needs did not answer in time. The task
// has no part in it.
type HangError struct{ message string }

// Error is error's.
func (e *HangError) Error() string { return e.message }

// Hint is the next step.
func (e *HangError) Hint() string {
	return "see that the file system of the task's program and folder is there (a network mount whose server is away?); " +
		"the task is tried again by itself"
}

// asking has a channel for each question, which is full while it is asked: a file system
// that hangs costs one thread for each of them.
var asking sync.Map

// ask waits for an answer that file systems of a program and a folder have to give, no
// longer than limit, and a minute; the error is a *HangError then.
func ask(ctx context.Context, limit time.Duration, program, dir, question string, answer func() string) (string, error) {
	limit = min(limit, reachLimit)
	where := program
	if dir != "" {
		where += " or of the folder " + dir
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &HangError{fmt.Sprintf("the file system of %s did not answer for %s", where, limit)})
	defer cancel()
	one, _ := asking.LoadOrStore(question, make(chan struct{}, 1))
	turn, found := one.(chan struct{}), make(chan string, 1)
	for free := turn; ; {
		select {
		case free <- struct{}{}:
			free = nil
			go func() {
				defer func() { <-turn }()
				found <- answer()
			}()
		case text := <-found:
			return text, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Reach waits until the file systems of the task's program and folder answer. A start
// that hangs there would hold up the whole program: Go's collector waits for a thread
// that forks. The error is a *HangError.
func (t Task) Reach(ctx context.Context, limit time.Duration) error {
	program := t.interpreter()
	for _, argv := range [][]string{t.Command, t.Program} {
		if len(argv) > 0 {
			program = argv[0]
		}
	}
	_, err := ask(ctx, limit, program, t.Dir, "reach "+program+" "+t.Dir, func() string {
		touch(program, t.Dir)
		return ""
	})
	return err
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

// Code is what the task runs. Reading it may block.
func (t Task) Code() edition.Code {
	command := t.Command
	if len(command) == 0 {
		command = t.Program
	}
	return edition.Code{Dir: t.Dir, Target: t.Target(), Command: command}
}

// Edition is that of the task's code as its files are now.
// The error is a *HangError.
func (t Task) Edition(ctx context.Context, limit time.Duration) (string, error) {
	code := t.Code()
	words := strings.Join(append(slices.Clone(code.Command), code.Target), " ")
	return ask(ctx, limit, words, t.Dir, fmt.Sprint(code), func() string { return code.Edition() })
}
