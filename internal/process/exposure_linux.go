package process

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"strconv"
)

// When memory runs out, the kernel kills the process with the highest score: the
// thousandths of the memory that it holds plus its exposure. A task process goes first,
// since its item runs again; then a template. The worker would take all its items with
// it.
const (
	TaskExposure     = 500
	TemplateExposure = 250
	mostExposure     = 1000
)

// expose makes the out-of-memory killer choose a process and its descendants first.
func expose(pid, by int) error {
	own, err := os.ReadFile(proc + "/self/oom_score_adj")
	worker, parseErr := strconv.Atoi(string(bytes.TrimSpace(own)))
	if err := cmp.Or(err, parseErr); err != nil {
		return fmt.Errorf("read what the worker is exposed by to the out-of-memory killer: %w", err)
	}
	file := fmt.Sprintf("%s/%d/oom_score_adj", proc, pid)
	if err := os.WriteFile(file, strconv.AppendInt(nil, int64(min(worker+by, mostExposure)), 10), 0); err != nil {
		return fmt.Errorf("expose process %d to the out-of-memory killer before the worker: %w", pid, err)
	}
	return nil
}
