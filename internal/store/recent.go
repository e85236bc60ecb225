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

// recent are values between stages that this process has stored, the oldest first in
// order. Faults are not among them: another try may have replaced one elsewhere.
type recent struct {
	mu     sync.Mutex
	values map[place]gpumux.Result
	order  []place
	bytes  int
}

type place struct {
	folder string
	index  int64
}

func weigh(r gpumux.Result) int { return r.Weight() + entryBytes }

func (c *recent) put(folder string, values []gpumux.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[place]gpumux.Result{}
	}
	for _, r := range values {
		at := place{folder, r.Index}
		if old, known := c.values[at]; known {
			c.bytes -= weigh(old)
		} else {
			c.order = append(c.order, at)
		}
		c.values[at] = r
		c.bytes += weigh(r)
	}
	for ; len(c.order) > 0; c.order = c.order[1:] {
		if _, known := c.values[c.order[0]]; known && c.bytes <= recentBytes {
			return
		}
		c.forget(c.order[0])
	}
}

func (c *recent) forget(at place) (r gpumux.Result, known bool) {
	if r, known = c.values[at]; known {
		c.bytes -= weigh(r)
		delete(c.values, at)
	}
	return r, known
}

// take calls take with those of the items that it knows, and returns the others. It
// forgets them: the next stage reads each once.
func (c *recent) take(folder string, runs contract.Runs, take func(gpumux.Result) error) (contract.Runs, error) {
	var found contract.Runs
	for _, run := range runs {
		for i := run.Start; i < run.End; i++ {
			c.mu.Lock()
			r, known := c.forget(place{folder, i})
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
