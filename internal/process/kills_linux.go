package process

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ownCgroup is where version 2 is mounted, and this process's cgroup below it; "/" is the
// root of what it can see. Both are empty without version 2.
func ownCgroup(root string) (mount, path string) {
	data, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSpace(rest)
		}
	}
	if mount = mountOf(root, "cgroup2", ""); path == "" || mount == "" {
		return "", ""
	}
	return mount, path
}

// mountOf is where the first file system of a kind, with an option, is mounted.
func mountOf(root, kind, option string) string {
	data, _ := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	for line := range strings.Lines(string(data)) {
		before, after, _ := strings.Cut(line, " - ")
		at, what := strings.Fields(before), strings.Fields(after)
		if len(at) >= 5 && len(what) >= 3 && what[0] == kind && (option == "" || slices.Contains(strings.Split(what[2], ","), option)) {
			return at[4]
		}
	}
	return ""
}

// MemoryKills is how many processes the out-of-memory killer has killed in the worker's
// own cgroup; 0 where the kernel does not tell.
func MemoryKills() int { return killsIn(killsFile()) }

var killsFile = sync.OnceValue(func() string { return findKills("/") })

// findKills finds the counter in version 2, else in version 1, else the host's.
func findKills(root string) string {
	var candidates []string
	if mount, path := ownCgroup(root); mount != "" {
		candidates = append(candidates, filepath.Join(root, mount, path, "memory.events"), filepath.Join(root, mount, "memory.events"))
	}
	data, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(data)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) == 3 && slices.Contains(strings.Split(part[1], ","), "memory") {
			mount := filepath.Join(root, mountOf(root, "cgroup", "memory"))
			candidates = append(candidates, filepath.Join(mount, part[2], "memory.oom_control"), filepath.Join(mount, "memory.oom_control"))
		}
	}
	for _, file := range append(candidates, filepath.Join(root, "proc/vmstat")) {
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte("oom_kill ")) {
			return file
		}
	}
	return ""
}

// killsIn reads the counter of a file of findKills.
func killsIn(file string) int {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return 0
}
