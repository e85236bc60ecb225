package gpu

import "time"

// Census follows the trees of a few processes through time at little cost: a round looks at each process of the host once,
// when it first meets it, and after that only at those that belong to a tree. A process that has once belonged to a tree stays
// in it, also when its parent ended or when it left the process group. It must not be used by two goroutines at once.
type Census struct {
	// owners has every process that was met: the root of its tree, or 0.
	owners map[int]int
	trees  map[int]*Tree
	whole  time.Time
}

// Tree is the processes of one root and their resident memory in bytes, as of the last round.
type Tree struct {
	Resident map[int]uint64
}

// Sum is the resident memory of the whole tree. A page that several processes share counts once for each.
func (t *Tree) Sum() (sum uint64) {
	for _, bytes := range t.Resident {
		sum += bytes
	}
	return sum
}

// censusEvery is how often strangers are looked at again: their numbers may have passed to others.
const censusEvery = 5 * time.Second

// NewCensus follows nothing yet.
func NewCensus() *Census { return &Census{owners: map[int]int{}, trees: map[int]*Tree{}} }

// Follow makes a process the root of a tree. It is best called as soon as the process has started.
func (c *Census) Follow(root int) {
	c.owners[root] = root
	c.trees[root] = &Tree{Resident: map[int]uint64{}}
}

// Forget ends a tree; its processes are strangers from now on.
func (c *Census) Forget(root int) {
	delete(c.trees, root)
	for pid, owner := range c.owners {
		if owner == root {
			delete(c.owners, pid)
		}
	}
}

// Tree is the tree of a root, or nil when it is not followed. It changes with the next round.
func (c *Census) Tree(root int) *Tree { return c.trees[root] }

// adopt gives new processes, with what is known of them, their places in the trees.
func (c *Census) adopt(fresh map[int]processRow) {
	for again := true; again; {
		again = false
		for pid, row := range fresh {
			owner := c.owners[row.parent]
			if owner == 0 {
				owner = c.owners[row.group]
			}
			if c.trees[owner] != nil {
				c.owners[pid], again = owner, true
				delete(fresh, pid)
			}
		}
	}
	for pid := range fresh {
		c.owners[pid] = 0
	}
}

// Resident is the resident memory in bytes of the given processes now, without their descendants.
func Resident(pids ...int) (sum uint64) {
	for _, pid := range pids {
		bytes, _ := resident(pid)
		sum += bytes
	}
	return sum
}

// Proportional is like Resident, but divides each shared page among the processes that map it, which takes longer.
func Proportional(pids ...int) (sum uint64) {
	for _, pid := range pids {
		if bytes, ok := resident(pid); ok {
			sum += proportional(pid, bytes)
		}
	}
	return sum
}
