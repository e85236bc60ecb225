package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// When memory runs out where no budget limits it, in the whole host or the worker's container, the kernel kills the process with
// the highest score: the thousandths of the memory that it holds and what it is exposed by. A task process goes first, since its
// item runs again; then a template, which costs an import. With the worker all its running items would go.
const (
	TaskExposure     = 500
	TemplateExposure = 250
	mostExposure     = 1000
)

// expose makes a process more likely to be killed than the worker when memory runs out. Descendants inherit it.
func expose(pid, by int) error {
	own, err := os.ReadFile(proc + "/self/oom_score_adj")
	if err != nil {
		return fmt.Errorf("read what the worker is exposed by to the out-of-memory killer: %w", err)
	}
	worker, err := strconv.Atoi(string(bytes.TrimSpace(own)))
	if err != nil {
		return fmt.Errorf("read what the worker is exposed by to the out-of-memory killer: %w", err)
	}
	file := fmt.Sprintf("%s/%d/oom_score_adj", proc, pid)
	if err := os.WriteFile(file, strconv.AppendInt(nil, int64(min(worker+by, mostExposure)), 10), 0); err != nil {
		return fmt.Errorf("expose process %d to the out-of-memory killer before the worker: %w", pid, err)
	}
	return nil
}
