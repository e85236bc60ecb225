package gpu

// ProcessTable is the processes of this host at one moment, so that one scan serves all slots.
type ProcessTable struct {
	rows     map[int]processRow
	children map[int][]int // by parent
	groups   map[int][]int // by process group
}

type processRow struct {
	parent, group int
	resident      uint64 // bytes
}

// ReadProcesses scans the host's processes.
func ReadProcesses() (ProcessTable, error) {
	rows, err := scanProcesses()
	if err != nil {
		return ProcessTable{}, err
	}
	return newProcessTable(rows), nil
}

func newProcessTable(rows map[int]processRow) ProcessTable {
	t := ProcessTable{rows: rows, children: map[int][]int{}, groups: map[int][]int{}}
	for pid, r := range rows {
		t.children[r.parent] = append(t.children[r.parent], pid)
		t.groups[r.group] = append(t.groups[r.group], pid)
	}
	return t
}

// Tree is the processes that belong to the given ones, themselves included: descendants,
// members of the process group that one of them leads (also after it died), and the
// descendants of those. A process number below 1 is ignored.
func (t ProcessTable) Tree(pids ...int) []int {
	var out []int
	seen := map[int]bool{}
	queue := make([]int, 0, len(pids))
	for _, pid := range pids {
		if pid > 0 {
			queue = append(append(queue, pid), t.groups[pid]...)
		}
	}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		if _, alive := t.rows[pid]; alive {
			out = append(out, pid)
		}
		queue = append(queue, t.children[pid]...)
	}
	return out
}

// Resident is the resident memory in bytes of the tree of the given processes. A page that
// several of them share counts once for each, so this is an upper bound.
func (t ProcessTable) Resident(pids ...int) uint64 {
	var sum uint64
	for _, pid := range t.Tree(pids...) {
		sum += t.rows[pid].resident
	}
	return sum
}

// Proportional is like Resident, but divides each shared page among the processes that map
// it. It is slower, and asks the kernel now rather than when the table was read: ask for it
// before acting on what Resident says.
func (t ProcessTable) Proportional(pids ...int) uint64 {
	var sum uint64
	for _, pid := range t.Tree(pids...) {
		sum += proportional(pid, t.rows[pid].resident)
	}
	return sum
}

func (t ProcessTable) resident() map[int]uint64 {
	out := make(map[int]uint64, len(t.rows))
	for pid, r := range t.rows {
		out[pid] = r.resident
	}
	return out
}

// ResidentTree scans the host's processes and is the Resident of the given ones.
func ResidentTree(pids ...int) (uint64, error) {
	t, err := ReadProcesses()
	if err != nil {
		return 0, err
	}
	return t.Resident(pids...), nil
}
