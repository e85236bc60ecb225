package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// collector holds the results that came back inline. It moves them into the store when
// they are too many for the result of a workflow.
type collector struct {
	results []gpumux.Result
	bytes   int
	spilled bool
}

func (c *collector) collect(e *engine) func(workflow.Context, []gpumux.Result) error {
	return func(ctx workflow.Context, results []gpumux.Result) error {
		for _, r := range results {
			c.bytes += r.Weight()
		}
		c.results = append(c.results, results...)
		if c.bytes > gpumux.InlineBytes {
			return c.spill(ctx, e)
		}
		return nil
	}
}

// spill writes what has been collected as a part.
func (c *collector) spill(ctx workflow.Context, e *engine) error {
	if len(c.results) == 0 {
		return nil
	}
	input := contract.PartInput{Parts: e.parts, Claim: e.claim, Results: c.ordered()}
	c.results, c.bytes, c.spilled = nil, 0, true
	return workflow.ExecuteActivity(lightOptions(ctx, "store results"), contract.WritePart, input).Get(ctx, nil)
}

func (c *collector) ordered() []gpumux.Result {
	slices.SortFunc(c.results, func(a, b gpumux.Result) int { return int(a.Index - b.Index) })
	return c.results
}
