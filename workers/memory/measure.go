package memory

import "sync"

// Measure implements session.Watched. Without an answer of the driver it is the last reading.
func (f *watched) Measure() int64 {
	f.ask()
	return f.Held()
}

// Own implements session.Watched.
func (f *watched) Own() (bytes int64) {
	f.ask()
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if !f.cpu {
		for _, uuid := range f.uuids {
			bytes += int64(f.w.readings[uuid].held[f.pid])
		}
	}
	return bytes
}

// ask takes new readings of the process's devices.
func (f *watched) ask() {
	if f.cpu || !f.w.hostPIDs {
		return
	}
	var all sync.WaitGroup
	for _, uuid := range f.uuids {
		all.Go(func() { f.w.read(uuid) })
	}
	all.Wait()
}
