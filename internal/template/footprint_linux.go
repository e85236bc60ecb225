package template

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// procfs is where the system shows its processes.
const procfs = "/proc"

// deviceFiles are the files of GPUs and other accelerators. A forked process cannot use
// what its parent opened there.
var deviceFiles = []string{"/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/accel", "/dev/dxg", "/dev/vfio/"}

// footprint names things left by an import that a fork would break or share between
// items, and the remedy; "" means none. proc is a tree like procfs. before are the
// descriptors that were open before the import; opened is where that opened a device, if
// that is known.
func footprint(proc string, pid int, before, devices []string, opened string) string {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	files, err2 := openFiles(dir, before)
	threads, err3 := filepath.Glob(filepath.Join(dir, "task/*"))
	for _, err := range []error{err, err2, err3} {
		if err != nil {
			return fmt.Sprintf("what its import left cannot be seen: %v", err)
		}
	}
	onDevice := func(path string) bool {
		return slices.ContainsFunc(devices, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	}
	shared := ""
	for line := range bytes.Lines(maps) {
		fields := strings.Fields(string(line)) // range, permissions, offset, device, inode, path
		if len(fields) < 2 {
			continue
		}
		path := strings.Join(fields[min(5, len(fields)):], " ")
		if onDevice(path) {
			files = append(files, path)
		}
		if strings.HasSuffix(fields[1], "s") && strings.Contains(fields[1], "w") && !ours(path) {
			shared = path
		}
	}
	if at := slices.IndexFunc(files, onDevice); at >= 0 {
		if opened != "" {
			opened = " " + opened
		}
		return fmt.Sprintf("its import uses the device%s (%s is open), which a forked process cannot go on with; use the device in the function",
			opened, files[at])
	}
	if len(threads) > 1 {
		return fmt.Sprintf("its import leaves %d threads running, which a forked process would lack; start them in the function", len(threads)-1)
	}
	for _, thread := range threads {
		if child, _ := os.ReadFile(filepath.Join(thread, "children")); len(bytes.TrimSpace(child)) > 0 {
			return fmt.Sprintf("its import leaves process %s running, which belongs to no item; start it in the function", bytes.Fields(child)[0])
		}
	}
	for _, path := range files {
		if !ours(path) {
			return fmt.Sprintf("its import leaves %s open, which the items would share; open it in the function, or close it", path)
		}
	}
	if shared != "" {
		return fmt.Sprintf("its import leaves memory that all items would share (%s); make it in the function", shared)
	}
	return ""
}

// ours reports whether the runtime opens the file, or all who open it see the same.
func ours(path string) bool {
	switch path {
	case "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full":
		return true
	}
	return strings.HasPrefix(path, "/memfd:gpumux-")
}

// openFiles are the paths of a process's open files, except the descriptors in without.
func openFiles(dir string, without []string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		if slices.Contains(without, entry.Name()) {
			continue
		}
		// A descriptor that was closed meanwhile does not count.
		if path, err := os.Readlink(filepath.Join(dir, "fd", entry.Name())); err == nil {
			paths = append(paths, path)
		}
	}
	return paths, nil
}
