package activities

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// mostElsewhere is how often work is handed on for a worker that has the edition of the code that it is for.
	mostElsewhere = 30
	// elsewhereDelay is the pause before the first time, which grows up to mostElsewhereDelay.
	elsewhereDelay, mostElsewhereDelay = 100 * time.Millisecond, 2 * time.Second
)

// FindEdition says which edition of a task's code this worker has.
func (p *Pool) FindEdition(ctx context.Context, in contract.EditionInput) (contract.Edition, error) {
	edition, err := p.Edition(in.Task)
	var fault *gpumux.Fault
	if errors.As(err, &fault) {
		return contract.Edition{}, final(fault)
	}
	if err != nil {
		return contract.Edition{}, err
	}
	found := contract.Edition{Edition: edition}
	if p.Workers != nil && p.Slots != nil {
		found.Slots = p.Workers(ctx) * p.Slots()
	}
	return found, nil
}

// elsewhere decides about work for an edition that this worker does not have: another worker may have it, if there is one, but not
// for ever.
func (p *Pool) elsewhere(ctx context.Context, fault *gpumux.Fault, tries int) error {
	if tries >= mostElsewhere || p.Workers == nil || p.Workers(ctx) == 1 {
		return final(fault)
	}
	activity.GetLogger(ctx).Warn("the code here is not what the map began with; another worker may have it", "task", fault.Task, "edition", fault.Edition, "fault", fault.Error(), "tries", tries)
	return again(fault, min(mostElsewhereDelay, time.Duration(tries)*elsewhereDelay))
}

// elsewhere is that of the pool, for a chunk.
func (r *run) elsewhere(fault *gpumux.Fault) error {
	r.l.mu.Lock()
	r.l.memo.Elsewhere++
	tries := r.l.memo.Elsewhere
	r.l.mu.Unlock()
	return r.Pool.elsewhere(r.ctx, fault, tries)
}

// edition is the one that the chunk's items are to run with: that of those which have run, else what the map asks for.
func (l *ledger) edition() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.memo.Edition, l.chunk.Edition)
}

func (l *ledger) ran(edition string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memo.Edition = edition
}
