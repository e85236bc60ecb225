package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/payload"
)

// checked is an activity that reads and validates its input before it calls f. A wrong input is a final error; one of a later version of
// the contract is tried again, until a worker has it that knows the version. Every activity with an input is registered through it.
func checked[In, Out any](f func(context.Context, In) (Out, error)) func(context.Context, converter.RawValue) (Out, error) {
	return func(ctx context.Context, raw converter.RawValue) (out Out, err error) {
		var in In
		var skew *contract.SkewError
		switch err := payload.Decode(raw, &in); {
		case errors.As(err, &skew):
			return out, outdated(ctx, skew)
		case err != nil:
			return out, badInput(err, "")
		}
		return f(ctx, in)
	}
}

// outdated is the error for an input that this worker is too old for.
func outdated(ctx context.Context, skew *contract.SkewError) error {
	whose := "the workers"
	if pool, of := strings.CutPrefix(activity.GetInfo(ctx).TaskQueue, gpumux.Queue+"."); of {
		pool, _, _ = strings.Cut(pool, ".")
		pool, _, _ = strings.Cut(pool, "@")
		whose = "the workers of pool " + pool
	}
	return retry(&gpumux.Fault{Kind: gpumux.BadInput, Op: "start", Blameless: true, Message: skew.Error(),
		Hint: fmt.Sprintf("upgrade %s to the gpumux of the workflow, whose contract is version %d, or a later one; until then it is tried again",
			whose, skew.Version)}, 0)
}

// mostWritten is how many writers of parts a memo may name: one per worker that had the chunk.
const mostWritten = 1000

// fits returns an error if a memo cannot be of a chunk's items: any client may send a heartbeat.
func (m memo) fits(items gpumux.Runs) error {
	if len(m.Written) > mostWritten {
		return fmt.Errorf("it names %d writers of parts", len(m.Written))
	}
	n := items.Len()
	seen := map[int64]bool{}
	for _, r := range m.Results {
		if !items.Has(r.Index) || seen[r.Index] || (r.Value == nil) == (r.Fault == nil) {
			return fmt.Errorf("it has a result of item %d that cannot be", r.Index)
		}
		seen[r.Index] = true
	}
	for _, run := range slices.Concat(m.Escalate, m.Again) {
		// Two runs of the memo may be one of the chunk, and one of the memo spans no gap of the chunk's.
		if !items.Covers(run) || slices.ContainsFunc(m.Results, func(r gpumux.Result) bool { return r.Index >= run.Start && r.Index < run.End }) {
			return fmt.Errorf("it hands items %d to %d back", run.Start, run.End-1)
		}
	}
	for index, s := range m.Suspects {
		if !items.Has(index) || s.Alone < 0 || s.Tries < s.Alone {
			return fmt.Errorf("it suspects item %d", index)
		}
	}
	for _, w := range m.Written {
		if !w.Valid() {
			return fmt.Errorf("%q is no writer of parts", w.Writer)
		}
	}
	if m.Hunt < 0 || m.Hunt > n || m.Starts < 0 {
		return fmt.Errorf("it looks for a culprit among %d of %d items after %d starts", m.Hunt, n, m.Starts)
	}
	return nil
}

// knowsDeaths reports whether something of it would be lost with a chunk that is handed back.
func (m memo) knowsDeaths() bool {
	return len(m.Suspects) > 0 || m.Hunt > 0 || m.Starts > 0 || m.Spared > 0
}
