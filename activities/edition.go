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
	// mostElsewhere is how often work is handed on because the worker does not have its edition of the code.
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
	found := contract.Edition{Edition: edition, Contact: p.Contact}
	if p.Workers != nil && p.Slots != nil {
		found.Slots = p.Workers(ctx) * p.Slots()
	}
	return found, nil
}

// elsewhere is the error for work of an edition that this worker does not have. Another worker may have it, so the work is tried
// again some times, unless this worker is the only one.
func (p *Pool) elsewhere(ctx context.Context, fault *gpumux.Fault, tries int) error {
	if tries >= mostElsewhere || p.Workers == nil || p.Workers(ctx) == 1 {
		return final(fault)
	}
	activity.GetLogger(ctx).Warn("the code here is not what the map began with; another worker may have it",
		"task", fault.Task, "edition", fault.Edition, "fault", fault.Error(), "tries", tries)
	return retry(fault, min(mostElsewhereDelay, time.Duration(tries)*elsewhereDelay))
}

// elsewhere is Pool.elsewhere for a chunk.
func (a *attempt) elsewhere(fault *gpumux.Fault) error {
	a.ledger.mu.Lock()
	a.ledger.memo.Elsewhere++
	tries := a.ledger.memo.Elsewhere
	a.ledger.mu.Unlock()
	return a.Pool.elsewhere(a.ctx, fault, tries)
}

// edition is the one that the chunk's items must run with: that of the items which have run, else the map's.
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
