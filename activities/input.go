package activities

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// checked is an activity whose input is read and found good before f sees it; what is wrong with it is final. Every activity
// that takes an input is registered through it.
func checked[In interface{ Validate() error }, Out any](f func(context.Context, In) (Out, error)) func(context.Context, converter.RawValue) (Out, error) {
	return func(ctx context.Context, raw converter.RawValue) (out Out, err error) {
		var in In
		if err := contract.Decode(raw, &in); err != nil {
			return out, badInput(err, "")
		}
		return f(ctx, in)
	}
}

// fits says why a memo cannot be of a chunk: any client may send a heartbeat.
func (m memo) fits(c gpumux.Chunk) error {
	inside := func(index int64) bool { return index >= c.Start && index < c.End }
	if int64(len(m.Results)) > c.End-c.Start || int64(len(m.Escalate)) > c.End-c.Start {
		return fmt.Errorf("it tells of %d results and %d items for a larger slot", len(m.Results), len(m.Escalate))
	}
	seen := map[int64]bool{}
	for _, r := range m.Results {
		if !inside(r.Index) || seen[r.Index] || (r.Value == nil) == (r.Fault == nil) {
			return fmt.Errorf("it has a result of item %d that cannot be", r.Index)
		}
		seen[r.Index] = true
	}
	for _, index := range m.Escalate {
		if !inside(index) || seen[index] {
			return fmt.Errorf("it sends item %d to a larger slot", index)
		}
		seen[index] = true
	}
	for index, s := range m.Suspects {
		if !inside(index) || s.Alone < 0 || s.Tries < s.Alone {
			return fmt.Errorf("it suspects item %d", index)
		}
	}
	if m.Hunt < 0 || m.Hunt > c.End || m.Starts < 0 {
		return fmt.Errorf("it looks for a culprit before item %d after %d starts", m.Hunt, m.Starts)
	}
	return nil
}

// fits says why a checkpoint cannot be of a stretch, whose states lie in the folder.
func (c checkpoint) fits(in gpumux.Span, folder string) error {
	if c.Next < in.Start || c.Next > in.End || c.Count < 0 || c.Count > c.Next-in.Start {
		return fmt.Errorf("it stands at item %d with %d values", c.Next, c.Count)
	}
	if c.Key != "" && c.Key != stateKey(folder, c.Next) {
		return fmt.Errorf("its state would be %.200q", c.Key)
	}
	return stackFits(c.Stack, in)
}

// stackFits says why a stack cannot be of a stretch.
func stackFits(stack []rest, in gpumux.Span) error {
	at := in.Start
	for _, r := range stack {
		if r.Start < at || r.End <= r.Start || r.End > in.End || r.Value == nil || r.Rank < 0 {
			return fmt.Errorf("it has a value of items %d to %d", r.Start, r.End)
		}
		at = r.End
	}
	return nil
}
