package gpu

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Round brings the trees up to date.
func (c *Census) Round() error {
	dir, err := os.Open("/proc")
	if err != nil {
		return fmt.Errorf("gpu: list processes: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close()
	if err != nil {
		return fmt.Errorf("gpu: list processes: %w", err)
	}
	whole := time.Since(c.whole) > censusEvery
	if whole {
		c.whole = time.Now()
	}
	alive := make(map[int]bool, len(names))
	fresh := map[int]processRow{}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		alive[pid] = true
		if owner, met := c.owners[pid]; met && (owner != 0 || !whole) {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		if row, ok := parseStat(stat); ok {
			fresh[pid] = row
		}
	}
	c.adopt(fresh)
	for _, tree := range c.trees {
		clear(tree.Resident)
	}
	for pid, owner := range c.owners {
		if !alive[pid] {
			// The root keeps its tree until it is forgotten: its group may live on.
			if owner != pid {
				delete(c.owners, pid)
			}
			continue
		}
		if tree := c.trees[owner]; owner != 0 && tree != nil {
			if held, ok := resident(pid); ok {
				tree.Resident[pid] = held
			}
		}
	}
	return nil
}

// resident is the second number of statm, in pages.
func resident(pid int) (uint64, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, false
	}
	f := bytes.Fields(data)
	if len(f) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseUint(string(f[1]), 10, 64)
	return pages * pageSize, err == nil
}
