package contact

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refusals of one queue are a series while no longer than this lies between two: the SDK
// asks again within ten seconds. Later the server holds the request open.
const betweenRefusals = 15 * time.Second

// Polls knows which queues the server refuses work from: without the matching service it
// answers every other question. The zero value is ready; any goroutine may use it.
type Polls struct {
	mu      sync.Mutex
	refused map[string]refusals // by queue
}

type refusals struct {
	first, last time.Duration
	err         error
}

// Note records the answer to a request for work, or its absence.
func (p *Polls) Note(queue string, err error, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch code := status.Code(err); {
	case code == codes.Canceled: // the worker's own
	case code != codes.Unavailable && code != codes.DeadlineExceeded:
		delete(p.refused, queue)
	default:
		series := p.refused[queue]
		if series.err == nil || now-series.last > betweenRefusals {
			series.first = now
		}
		series.last, series.err = now, err
		if p.refused == nil {
			p.refused = map[string]refusals{}
		}
		p.refused[queue] = series
	}
}

// Refused says from which queue no work has come for Limit and why, or is nil.
func (p *Polls) Refused(now time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for queue, series := range p.refused {
		if now-series.first > Limit && now-series.last <= betweenRefusals {
			return fmt.Errorf("the Temporal server has given no work from queue %s for %s: %w", queue, (now - series.first).Round(time.Second), series.err)
		}
	}
	return nil
}
