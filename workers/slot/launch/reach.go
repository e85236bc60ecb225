package launch

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// reachLimit is how long the file system of a task's program and folder may take to answer.
const reachLimit = time.Minute

// HangError says that something that a start needs did not answer in time.
type HangError struct {
	message string
	// Hint is the next step. Blameless says that the task has no part in it, and is tried again by itself.
	Hint      string
	Blameless bool
}

// Error is error's.
func (e *HangError) Error() string { return e.message }

// answering is a context that ends with a *HangError when the file system of a program and a folder has not answered in time.
func answering(ctx context.Context, limit time.Duration, program, dir string) (context.Context, context.CancelFunc) {
	limit = min(limit, reachLimit)
	where := program
	if dir != "" {
		where += " or of the folder " + dir
	}
	return context.WithTimeoutCause(ctx, limit, &HangError{
		message: fmt.Sprintf("the file system of %s did not answer for %s", where, limit), Blameless: true,
		Hint: "see that the file system of the task's program and folder is there (a network mount whose server is away?); " +
			"the task is tried again by itself",
	})
}

// reaching are the questions to file systems that have not been answered. One that hangs costs a thread for each of them.
var reaching = struct {
	sync.Mutex
	answered map[[2]string]chan struct{}
}{answered: map[[2]string]chan struct{}{}}

// Reach waits until the file systems of the task's program and folder answer; what they answer is for the start to say. A start that
// hangs in one would hold up everything in this program, not only what starts: Go's collector waits for a thread that forks. It waits
// no longer than limit, and a minute; the error is a *HangError then.
func (t Task) Reach(ctx context.Context, limit time.Duration) error {
	program := t.interpreter()
	if known, ok := interpreters.Load(program); ok {
		program = known.(string)
	}
	for _, argv := range [][]string{t.Command, t.Program} {
		if len(argv) > 0 {
			program = argv[0]
		}
	}
	ctx, cancel := answering(ctx, limit, program, t.Dir)
	defer cancel()
	select {
	case <-asked(program, t.Dir):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// asked is closed when the file systems of a program and a folder have answered.
func asked(program, dir string) <-chan struct{} {
	reaching.Lock()
	defer reaching.Unlock()
	key := [2]string{program, dir}
	answered := reaching.answered[key]
	if answered == nil {
		answered = make(chan struct{})
		reaching.answered[key] = answered
		go func() {
			touch(program, dir)
			reaching.Lock()
			delete(reaching.answered, key)
			reaching.Unlock()
			close(answered)
		}()
	}
	return answered
}

// touch reads what a start reads. Starting something else than a regular file fails, and opening it could wait for others.
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
