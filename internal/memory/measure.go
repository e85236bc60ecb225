package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gpumux/gpumux/gpu"
)

const (
	// returnLimit is how long the memory of a process that has ended may take to come back.
	// The driver mostly has it back before the process can be reaped.
	returnLimit = 5 * time.Second
	// returnFirst is the pause before the second look; later pauses grow to returnMax.
	returnFirst, returnMax = 2 * time.Millisecond, 100 * time.Millisecond
)

// Measure implements session.Watched. If the driver is silent, the last reading stands.
func (f *watched) Measure() int64 {
	if f.seen() {
		var all sync.WaitGroup
		for _, uuid := range f.uuids {
			all.Go(func() { f.w.read(uuid) })
		}
		all.Wait()
	}
	return f.Held()
}

// seen reports whether the driver tells what the process holds on its devices.
func (f *watched) seen() bool {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return !f.cpu && !slices.ContainsFunc(f.uuids, func(uuid string) bool { return !f.w.sees(uuid) })
}

func (f *watched) AwaitReturn(ctx context.Context) (left int64) {
	if !f.seen() {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, f.w.patience)
	defer cancel()
	for pause := returnFirst; ; pause = min(2*pause, returnMax) {
		if left = f.listed(); left == 0 {
			return 0
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return left
		}
	}
}

// listed is the memory of a process that is not followed any more.
func (f *watched) listed() (sum int64) {
	for _, uuid := range f.uuids {
		held, err := f.w.devices.ProcessMemory(uuid)
		if err != nil {
			continue
		}
		sum += int64(held[f.pid])
		for _, pid := range f.others {
			sum += int64(held[pid])
		}
	}
	return sum
}

// findOthers updates the list of descendants and returns the tree, or nil if the process
// is no longer followed. The caller holds the lock.
func (f *watched) findOthers() *gpu.Tree {
	tree := f.w.census.Tree(f.pid)
	if tree == nil {
		return nil
	}
	f.others = f.others[:0]
	for pid := range tree.Resident {
		if pid != f.pid {
			f.others = append(f.others, pid)
		}
	}
	return tree
}
