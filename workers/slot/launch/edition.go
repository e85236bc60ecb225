package launch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gpumux/gpumux/workers/edition"
)

// Code is what the task runs. What it reads of it blocks while its file system does not answer.
func (t Task) Code() edition.Code {
	command := t.Command
	if len(command) == 0 {
		command = t.Program
	}
	return edition.Code{Dir: t.Dir, Target: t.Target(), Command: command}
}

// looking has a channel for each code, which is full while somebody looks at its files: one that
// hangs costs one thread.
var looking sync.Map

// Edition is that of the task's code as its files are now. It waits for the file system no longer
// than limit, and a minute; the error is a *HangError then.
func (t Task) Edition(ctx context.Context, limit time.Duration) (string, error) {
	code := t.Code()
	ctx, cancel := answering(ctx, limit, strings.Join(append(code.Command, code.Target), " "), t.Dir)
	defer cancel()
	one, _ := looking.LoadOrStore(fmt.Sprint(code), make(chan struct{}, 1))
	turn, found := one.(chan struct{}), make(chan string, 1)
	for free := turn; ; {
		select {
		case free <- struct{}{}:
			free = nil
			go func() {
				defer func() { <-turn }()
				found <- code.Edition()
			}()
		case now := <-found:
			return now, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}
