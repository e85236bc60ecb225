package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// processTable has every process of this host. Details of one are read on demand.
type processTable map[int]struct{}

type processRow struct{ parent, group int }

func readProcesses() (processTable, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("gpu: list processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("gpu: list processes: %w", err)
	}
	table := make(processTable, len(names))
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if pid, err := strconv.Atoi(name); err == nil {
			table[pid] = struct{}{}
		}
	}
	return table, nil
}

func (processTable) row(pid int) (processRow, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return processRow{}, false // it ended meanwhile
	}
	return parseStat(stat)
}

func (processTable) resident(pid int) (uint64, bool) { return resident(pid) }

var pageSize = uint64(os.Getpagesize())

// resident is the second number of statm, in pages.
func resident(pid int) (uint64, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	f := bytes.Fields(data)
	if err != nil || len(f) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseUint(string(f[1]), 10, 64)
	return pages * pageSize, err == nil
}

// parseStat reads /proc/PID/stat from behind the name, which may contain anything.
func parseStat(stat []byte) (processRow, bool) {
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 3 {
		return processRow{}, false
	}
	parent, err1 := strconv.Atoi(string(f[1]))
	group, err2 := strconv.Atoi(string(f[2]))
	return processRow{parent, group}, err1 == nil && err2 == nil
}

// proportional is the Pss of a process, resident where the kernel does not tell.
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
