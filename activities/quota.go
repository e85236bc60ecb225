package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// quotaDelay is the pause before work is tried again that was over its key's quota.
const quotaDelay = time.Second

// Admit gives the work of a fairness key a slot of its quota until leave is called, or
// returns the error of OverQuota. Await waits until the key's rate allows another item.
type Admit func(key string) (await func(context.Context) error, leave func(), err error)

// freely is the await where no quota is.
func freely(context.Context) error { return nil }

// enter admits an activity.
func (admit Admit) enter(ctx context.Context) (await func(context.Context) error, leave func(), err error) {
	if admit == nil {
		return freely, func() {}, nil
	}
	return admit(activity.GetInfo(ctx).Priority.FairnessKey)
}

// OverQuota returns the error of work that goes back since its key has its slots. The
// quota is its name, such as "the quota of team-a: 2 slots of pool gpu at host1".
func OverQuota(quota string) error {
	fault := &gpumux.Fault{Kind: gpumux.FaultCanceled, Op: contract.OpQuota, Message: contract.WaitsFor + quota}
	return failure(fault, temporal.ApplicationErrorOptions{NextRetryDelay: quotaDelay, Category: temporal.ApplicationErrorCategoryBenign})
}
