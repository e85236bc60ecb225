//go:build !linux

package gpu

// Round brings the trees up to date.
func (c *Census) Round() error {
	rows, err := scanProcesses()
	if err != nil {
		return err
	}
	fresh := map[int]processRow{}
	for pid, row := range rows {
		if c.owners[pid] == 0 {
			fresh[pid] = row
		}
	}
	c.adopt(fresh)
	for _, tree := range c.trees {
		clear(tree.Resident)
	}
	for pid, owner := range c.owners {
		row, alive := rows[pid]
		switch {
		case !alive && owner != pid:
			delete(c.owners, pid)
		case alive && owner != 0 && c.trees[owner] != nil:
			c.trees[owner].Resident[pid] = row.resident
		}
	}
	return nil
}

func resident(pid int) (uint64, bool) {
	rows, err := scanProcesses()
	row, ok := rows[pid]
	return row.resident, err == nil && ok
}
