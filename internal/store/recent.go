package store

import (
	"sync"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// recentBytes bounds the values that a Store remembers, entryBytes is what it takes to
	// remember one.
	recentBytes = 64 << 20
	entryBytes  = 256
)

// recent are the last values between stages that this process has stored, without those
// that were taken. Faults are not among them: another try may have replaced one
// elsewhere.
type recent struct {
	mu     sync.Mutex
	values map[place]gpumux.Result
	// stored is what was stored last, taken or not, the oldest first; bytes is its size.
	stored []entry
	bytes  int
}

type place struct {
	folder string
	index  int64
}

type entry struct {
	place
	bytes int
}

func (c *recent) put(folder string, values []gpumux.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[place]gpumux.Result{}
	}
	for _, r := range values {
		e := entry{place{folder, r.Index}, r.Weight() + entryBytes}
		c.values[e.place] = r
		c.stored = append(c.stored, e)
		c.bytes += e.bytes
	}
	for ; c.bytes > recentBytes; c.stored = c.stored[1:] {
		c.bytes -= c.stored[0].bytes
		delete(c.values, c.stored[0].place)
	}
}

// take calls take with those of the items that it knows, and returns the others. It
// forgets them: the next stage reads each once.
func (c *recent) take(folder string, runs contract.Runs, take func(gpumux.Result) error) (contract.Runs, error) {
	var found contract.Runs
	for _, run := range runs {
		for i := run.Start; i < run.End; i++ {
			c.mu.Lock()
			r, known := c.values[place{folder, i}]
			delete(c.values, place{folder, i})
			c.mu.Unlock()
			if !known {
				continue
			}
			if err := take(r); err != nil {
				return nil, err
			}
			found.Add(i)
		}
	}
	return runs.Without(found), nil
}
