package gpu

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/prometheus/procfs"
)

// processTable has every process of this host. Details of one are read on demand.
type processTable map[int]procfs.Proc

type processRow struct{ parent, group int }

func readProcesses() (processTable, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("gpu: list processes: %w", err)
	}
	table := make(processTable, len(all))
	for _, p := range all {
		table[p.PID] = p
	}
	return table, nil
}

func (t processTable) row(pid int) (processRow, bool) {
	stat, err := t[pid].Stat()
	return processRow{stat.PPID, stat.PGRP}, err == nil // else it ended meanwhile
}

func (t processTable) resident(pid int) (uint64, bool) {
	m, err := t[pid].Statm()
	return m.ResidentBytes(), err == nil
}

func resident(pid int) (uint64, bool) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, false
	}
	return processTable{pid: p}.resident(pid)
}

// proportional is the Pss of a process, resident where the kernel does not tell.
func proportional(pid int, resident uint64) uint64 {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0 // it has ended
	}
	rollup, err := p.ProcSMapsRollup()
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH):
		return 0
	case err != nil || rollup.Pss == 0:
		return resident
	}
	return rollup.Pss
}
