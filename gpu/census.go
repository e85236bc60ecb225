package gpu

import (
	"cmp"
	"maps"
	"time"
)

// Census follows the process trees of a few roots at little cost: a round reads a process
// once, and later only those of a tree. A process stays in its tree when its parent ends
// or it leaves the group. It is for one goroutine at a time.
type Census struct {
	// roots has every process that was met: the root of its tree, or 0.
	roots   map[int]int
	trees   map[int]*Tree
	rescans time.Time // when processes outside the trees were last read
}

// Tree is the processes of one root and their resident bytes, as of the last round.
type Tree struct {
	Resident map[int]uint64
}

// Sum is the whole tree's resident memory; a shared page counts once per process.
func (t *Tree) Sum() (sum uint64) {
	for _, bytes := range t.Resident {
		sum += bytes
	}
	return sum
}

// rescanEvery: other processes are read again, as their numbers may be new.
const rescanEvery = 5 * time.Second

// NewCensus follows nothing yet.
func NewCensus() *Census { return &Census{roots: map[int]int{}, trees: map[int]*Tree{}} }

// Follow makes a process the root of a tree. Call it as soon as the process has started.
func (c *Census) Follow(root int) {
	c.roots[root] = root
	c.trees[root] = &Tree{Resident: map[int]uint64{}}
}

// Forget ends a tree; its processes belong to no tree from now on.
func (c *Census) Forget(root int) {
	delete(c.trees, root)
	maps.DeleteFunc(c.roots, func(_, tree int) bool { return tree == root })
}

// Tree is a root's tree, or nil. It changes with the next round.
func (c *Census) Tree(root int) *Tree { return c.trees[root] }

// Round brings the trees up to date.
func (c *Census) Round() error {
	table, err := readProcesses()
	if err != nil {
		return err
	}
	rescan := time.Since(c.rescans) > rescanEvery
	if rescan {
		c.rescans = time.Now()
	}
	fresh := map[int]processRow{}
	for pid := range table {
		if root, met := c.roots[pid]; met && (root != 0 || !rescan) {
			continue
		}
		if row, ok := table.row(pid); ok {
			fresh[pid] = row
		}
	}
	c.adopt(fresh)
	for _, tree := range c.trees {
		clear(tree.Resident)
	}
	for pid, root := range c.roots {
		if _, alive := table[pid]; !alive {
			// The root keeps its tree until it is forgotten: its group may live on.
			if root != pid {
				delete(c.roots, pid)
			}
		} else if root != 0 {
			if bytes, ok := table.resident(pid); ok {
				c.trees[root].Resident[pid] = bytes
			}
		}
	}
	return nil
}

func (c *Census) adopt(fresh map[int]processRow) {
	for changed := true; changed; {
		changed = false
		for pid, row := range fresh {
			root := cmp.Or(c.roots[row.parent], c.roots[row.group])
			if c.trees[root] != nil {
				c.roots[pid], changed = root, true
				delete(fresh, pid)
			}
		}
	}
	for pid := range fresh {
		c.roots[pid] = 0
	}
}

// ResidentMemory is the resident bytes of processes now, without their descendants.
func ResidentMemory(pids ...int) (sum uint64) {
	for _, pid := range pids {
		bytes, _ := resident(pid)
		sum += bytes
	}
	return sum
}

// ProportionalMemory divides each shared page among the processes that map it; slower.
func ProportionalMemory(pids ...int) (sum uint64) {
	for _, pid := range pids {
		if bytes, ok := resident(pid); ok {
			sum += proportional(pid, bytes)
		}
	}
	return sum
}
