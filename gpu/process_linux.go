package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

func scanProcesses() (map[int]processRow, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("gpu: list processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("gpu: list processes: %w", err)
	}
	rows := make(map[int]processRow, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
		if err != nil {
			continue // it ended meanwhile
		}
		if row, ok := parseStat(stat); ok {
			rows[pid] = row
		}
	}
	return rows, nil
}

var pageSize = uint64(os.Getpagesize())

// parseStat reads /proc/PID/stat from behind the command's name, which may contain anything.
func parseStat(stat []byte) (processRow, bool) {
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const parent, group, rss = 1, 2, 21
	if len(f) <= rss {
		return processRow{}, false
	}
	ppid, err1 := strconv.Atoi(string(f[parent]))
	pgid, err2 := strconv.Atoi(string(f[group]))
	pages, err3 := strconv.ParseUint(string(f[rss]), 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return processRow{}, false
	}
	return processRow{parent: ppid, group: pgid, resident: pages * pageSize}, true
}

// proportional is the Pss of a process; resident where the kernel does not tell, and 0 when
// the process is gone.
func proportional(pid int, resident uint64) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil || len(data) == 0 {
		if _, gone := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(gone, fs.ErrNotExist) {
			return 0
		}
		return resident
	}
	return kib(data, "Pss")
}
