package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// checked is an activity that reads and validates its input before it calls f, and whose
// errors Temporal understands. A wrong input is a final error; one of a later version of
// the contract is tried again, until a worker has it that knows the version. Every
// activity with an input is registered through it.
func checked[In, Out any](f func(context.Context, In) (Out, error)) func(context.Context, converter.RawValue) (Out, error) {
	return func(ctx context.Context, raw converter.RawValue) (out Out, err error) {
		defer func() { err = failure(err) }()
		var in In
		var skew *contract.SkewError
		switch err := contract.DecodePayload(raw, &in); {
		case errors.As(err, &skew):
			return out, retry(&gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Blameless: true, Message: skew.Error(),
				Hint: fmt.Sprintf("upgrade the workers of the queue %s to the gpumux of the workflow, whose contract is version %d, or a later one; "+
					"until then it is tried again", activity.GetInfo(ctx).TaskQueue, skew.Version)}, 0)
		case err != nil:
			return out, badInput(err, "")
		}
		return f(ctx, in)
	}
}
