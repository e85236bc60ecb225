package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// maxElsewhere is how often work is handed on because the worker does not have its edition of the code.
	maxElsewhere = 30
	// elsewhereDelay is the pause before the first time, which grows up to maxElsewhereDelay.
	elsewhereDelay, maxElsewhereDelay = 100 * time.Millisecond, 2 * time.Second
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
	if tries >= maxElsewhere || p.Workers == nil || p.Workers(ctx) == 1 {
		return final(fault)
	}
	activity.GetLogger(ctx).Warn("the code here is not what the map began with; another worker may have it",
		"task", fault.Task, "edition", fault.Edition, "fault", fault.Error(), "tries", tries)
	return retry(fault, min(maxElsewhereDelay, time.Duration(tries)*elsewhereDelay))
}
