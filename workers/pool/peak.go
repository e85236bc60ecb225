package pool

import "sync"

// Peak is the most that an item of a slot held, in bytes.
type Peak struct {
	mu   sync.Mutex
	most int64
}

// Take observes what one item held.
func (p *Peak) Take(held int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = max(p.most, held)
}

// Bytes is the most so far.
func (p *Peak) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}
