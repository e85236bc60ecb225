package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// MemoryKills is how many processes the out-of-memory killer has killed in the worker's
// own cgroup, on the whole host where that does not count, and 0 where nothing does.
func MemoryKills() int { return max(0, killsIn(killsFile())) }

var killsFile = sync.OnceValue(func() string { return findKills("/") })

// findKills finds the counter. Without a cgroup namespace of its own, a container sees
// the host's path, but only its own subtree mounted.
func findKills(root string) string {
	data, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for _, file := range []string{
		filepath.Join("sys/fs/cgroup", lineAfter(data, "\n0::"), "memory.events"), "sys/fs/cgroup/memory.events", // version 2
		filepath.Join("sys/fs/cgroup/memory", lineAfter(data, ":memory:"), "memory.oom_control"), "sys/fs/cgroup/memory/memory.oom_control",
		"proc/vmstat",
	} {
		if file = filepath.Join(root, file); killsIn(file) >= 0 {
			return file
		}
	}
	return ""
}

// killsIn reads the counter of a file, -1 where there is none.
func killsIn(file string) int {
	data, _ := os.ReadFile(file)
	n, err := strconv.Atoi(lineAfter(data, "\noom_kill "))
	if err != nil {
		return -1
	}
	return n
}

func lineAfter(data []byte, text string) string {
	_, rest, _ := strings.Cut("\n"+string(data), text)
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

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
