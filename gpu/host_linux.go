package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// host reads the kernel's files below root, which is / except in tests.
type host struct{ root string }

var thisHost = host{root: "/"}

func (h host) read(parts ...string) ([]byte, error) {
	return os.ReadFile(filepath.Join(append([]string{h.root}, parts...)...))
}

func (h host) cpuName() string {
	data, _ := h.read("proc/cpuinfo")
	return field(data, "model name", ":")
}

// cores are those next to a PCI device, as the kernel writes them.
func (h host) cores(address string) string {
	data, _ := h.read("sys/bus/pci/devices", strings.ToLower(address[max(0, len(address)-len("0000:07:00.0")):]), "local_cpulist")
	return strings.TrimSpace(string(data))
}

// memory is the host's, or that of the narrowest cgroup around this process.
func (h host) memory() (Memory, error) {
	data, err := h.read("proc/meminfo")
	if err != nil {
		return Memory{}, err
	}
	total, free := kib(data, "MemTotal"), kib(data, "MemAvailable")
	if total == 0 {
		return Memory{}, errors.New("/proc/meminfo has no MemTotal")
	}
	for _, dir := range h.cgroups() {
		if limit, used, ok := h.cgroupMemory(dir); ok {
			total = min(total, limit)
			free = min(free, limit-min(used, limit))
		}
	}
	free = min(free, total)
	return Memory{Total: total, Free: free, Used: total - free}, nil
}

// sign is evidence of a GPU of NVIDIA on this host, whether a driver serves it or not.
func (h host) sign() string {
	for _, pattern := range []string{"nvidia[0-9]*", "dxg"} {
		if files, _ := filepath.Glob(filepath.Join(h.root, "dev", pattern)); files != nil {
			return "/dev/" + filepath.Base(files[0])
		}
	}
	devices, _ := filepath.Glob(filepath.Join(h.root, "sys/bus/pci/devices/*"))
	for _, dir := range devices {
		vendor, _ := os.ReadFile(filepath.Join(dir, "vendor"))
		class, _ := os.ReadFile(filepath.Join(dir, "class"))
		if strings.HasPrefix(string(vendor), "0x10de") && strings.HasPrefix(string(class), "0x03") { // a display or 3D controller
			return "NVIDIA's PCI device " + filepath.Base(dir)
		}
	}
	return ""
}

// cgroups is the directories from this process's cgroup up to the root. Without a cgroup
// namespace of its own, a container sees the host's path but only its own subtree: its
// root is its limit, and the others are not there.
func (h host) cgroups() (dirs []string) {
	data, _ := h.read("proc/self/cgroup")
	_, limited, _ := strings.Cut(string(data), ":memory:") // as in 4:memory:/path
	limited, _, _ = strings.Cut(limited, "\n")
	for root, path := range map[string]string{"/sys/fs/cgroup": field(data, "0:", ":"), version1: limited} { // 0::/path
		for path = filepath.Join("/", path); path != "/"; path = filepath.Dir(path) {
			dirs = append(dirs, root+path)
		}
		dirs = append(dirs, root)
	}
	return dirs
}

// version1 is where cgroups of version 1 that limit memory are.
const version1 = "/sys/fs/cgroup/memory"

// cgroupMemory is the limit of one cgroup and what counts against it. Cache that the
// kernel would drop first is not counted.
func (h host) cgroupMemory(dir string) (limit, used uint64, ok bool) {
	names := [...]string{"memory.max", "memory.current", "inactive_file"}
	if strings.HasPrefix(dir+"/", version1+"/") {
		names = [...]string{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	}
	data, _ := h.read(dir, names[0])
	limit, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, 0, false // "max": no limit
	}
	data, _ = h.read(dir, names[1])
	used, _ = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	data, _ = h.read(dir, "memory.stat")
	cache, _ := strconv.ParseUint(field(data, names[2], " "), 10, 64)
	return limit, used - min(cache, used), true
}

// field is the value of the first line that is key, blanks, sep, value; or empty.
func field(data []byte, key, sep string) string {
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		if sep != " " {
			rest = strings.TrimLeft(rest, " \t")
		}
		if v, ok := strings.CutPrefix(rest, sep); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// kib reads a line such as "MemTotal:  16384 kB" in bytes; 0 when it is not there.
func kib(data []byte, key string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(field(data, key, ":"), " kB"), 10, 64)
	return n * 1024
}
