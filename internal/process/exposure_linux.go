package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// When memory runs out, the kernel kills the process with the highest score: the
// thousandths of the memory that it holds plus its exposure. A task process goes first,
// since its item runs again; then a template. The worker would take all its items with
// it.
const (
	TaskExposure     = 500
	TemplateExposure = 250
	maxExposure      = 1000
)

// expose makes the out-of-memory killer choose a process and its descendants before the
// worker.
func expose(pid, exposure int) error {
	data, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	worker, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return err
	}
	file := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	return os.WriteFile(file, []byte(strconv.Itoa(min(worker+exposure, maxExposure))), 0)
}
