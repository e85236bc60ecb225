package process

import (
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
