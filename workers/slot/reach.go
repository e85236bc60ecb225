package slot

import (
	"cmp"
	"context"
	"errors"
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

// reaching are the questions to file systems that have not been answered. One that hangs costs a thread for each of them.
var reaching = struct {
	sync.Mutex
	answered map[[2]string]chan struct{}
}{answered: map[[2]string]chan struct{}{}}

// reach waits until the file systems of a task's program and folder answer; what they answer is for the start to say. A start that
// hangs in one would hold up everything in this program, not only what starts: Go's collector waits for a thread that forks.
func reach(ctx context.Context, quit <-chan struct{}, o Options, task Task) error {
	program := cmp.Or(task.Interpreter, defaultInterpreter)
	if known, ok := interpreters.Load(program); ok {
		program = known.(string)
	}
	for _, argv := range [][]string{task.Command, task.Program} {
		if len(argv) > 0 {
			program = argv[0]
		}
	}
	wait := min(o.StartLimit, reachLimit)
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-asked(program, task.Dir):
		return nil
	case <-limit.C:
		return &unreachableError{program, task.Dir, wait}
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-quit:
		return ErrStopped
	}
}

// reach is reach for a call of this slot. An error is the fault of a start, or why the call ended.
func (s *Slot) reach(ctx context.Context, o Options, task Task) error {
	err := reach(ctx, s.quit, o, task)
	var away *unreachableError
	if errors.As(err, &away) {
		return s.unstarted(task, err)
	}
	return err
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

// unreachableError says that a file system does not answer.
type unreachableError struct {
	program, dir string
	after        time.Duration
}

func (e *unreachableError) Error() string {
	where := e.program
	if e.dir != "" {
		where += " or of the folder " + e.dir
	}
	return fmt.Sprintf("the file system of %s did not answer for %s", where, e.after)
}

// unreachableHint is the next step.
const unreachableHint = "see that the file system of the task's program and folder is there (a network mount whose server is " +
	"away?); the task is tried again by itself"
