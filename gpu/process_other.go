//go:build !linux

package gpu

import (
	"fmt"
	"os/exec"
	"strings"
)

// processTable has every process of this host.
type processTable map[int]processRow

type processRow struct {
	parent, group int
	bytes         uint64 // resident
}

// readProcesses asks ps, which every Unix has.
func readProcesses() (processTable, error) {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,pgid=,rss=").Output()
	if err != nil {
		return nil, fmt.Errorf("gpu: list processes with ps: %w", err)
	}
	table := processTable{}
	for line := range strings.Lines(string(out)) {
		var pid int
		var r processRow
		if _, err := fmt.Sscan(line, &pid, &r.parent, &r.group, &r.bytes); err == nil {
			r.bytes *= 1024
			table[pid] = r
		}
	}
	return table, nil
}

func (t processTable) row(pid int) (processRow, bool) { r, ok := t[pid]; return r, ok }

func (t processTable) resident(pid int) (uint64, bool) { r, ok := t[pid]; return r.bytes, ok }

func resident(pid int) (uint64, bool) {
	table, err := readProcesses()
	if err != nil {
		return 0, false
	}
	return table.resident(pid)
}

func proportional(_ int, resident uint64) uint64 { return resident }
