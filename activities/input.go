package activities

import (
	"context"

	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux/internal/contract"
)

// checked is an activity that reads and validates its input before it calls f, and whose
// errors Temporal understands. A wrong input is a final error. Every activity with an
// input is registered through it.
func checked[In, Out any](f func(context.Context, In) (Out, error)) func(context.Context, converter.RawValue) (Out, error) {
	return func(ctx context.Context, raw converter.RawValue) (out Out, err error) {
		defer func() { err = failure(err) }()
		var in In
		if err := contract.DecodePayload(raw, &in); err != nil {
			return out, badInput(err, "")
		}
		return f(ctx, in)
	}
}
