//go:build !linux

package gpu

import (
	"fmt"
	"os/exec"
	"strings"
)

// scanProcesses asks ps, which every Unix has.
func scanProcesses() (map[int]processRow, error) {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,pgid=,rss=").Output()
	if err != nil {
		return nil, fmt.Errorf("gpu: list processes with ps: %w", err)
	}
	rows := map[int]processRow{}
	for line := range strings.Lines(string(out)) {
		var pid int
		var r processRow
		if _, err := fmt.Sscan(line, &pid, &r.parent, &r.group, &r.resident); err != nil {
			continue
		}
		r.resident *= 1024
		rows[pid] = r
	}
	return rows, nil
}

func proportional(_ int, resident uint64) uint64 { return resident }
