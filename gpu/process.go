package gpu

type processRow struct {
	parent, group int
	resident      uint64 // bytes
}

// residents is the resident memory in bytes of each process of this host.
func residents() (map[int]uint64, error) {
	rows, err := scanProcesses()
	if err != nil {
		return nil, err
	}
	out := make(map[int]uint64, len(rows))
	for pid, r := range rows {
		out[pid] = r.resident
	}
	return out, nil
}
