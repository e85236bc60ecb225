package workflows_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// patterns say which items are left over or need a larger slot.
var patterns = map[string]func(i int64, chance *rand.Rand) bool{
	"none":        func(int64, *rand.Rand) bool { return false },
	"every third": func(i int64, _ *rand.Rand) bool { return i%3 == 0 },
	"in blocks":   func(i int64, _ *rand.Rand) bool { return i/700%2 == 0 },
	"by chance":   func(_ int64, chance *rand.Rand) bool { return chance.IntN(10) == 0 },
	"all":         func(int64, *rand.Rand) bool { return true },
}

// Scattered items cost about as many chunks as items in a row, both when they are left
// over and when they climb the ladder. No payload is large.
func TestRegistered_AnyPatternCostsWhatARowDoes(t *testing.T) {
	const items = 200_000
	row := 0
	for _, name := range []string{"none", "every third", "in blocks", "by chance", "all"} {
		t.Run(name, func(t *testing.T) {
			chance := rand.New(rand.NewPCG(1, 2))
			stored, large := map[int64]bool{}, map[int64]bool{}
			for i := range int64(items) {
				if name != "all" && patterns[name](i, chance) {
					stored[i] = true // every other item is left over
				}
				if patterns[name](i+1, chance) {
					large[i] = true
				}
			}
			w := &worker{items: items, perItem: time.Millisecond, slots: 4, stored: stored}
			w.odd = func(c contract.Chunk, queue string) (*contract.ChunkResult, error) {
				text, err := json.Marshal(c)
				assert.NoError(t, err)
				assert.Less(t, len(text), 64<<10, "what a chunk carries")
				r := contract.ChunkResult{
					Covered: c.Len(), Ran: c.Len(), Busy: gpumux.Duration(c.Len() * int64(time.Millisecond)), Worker: "w1", Slots: 4,
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, i := range w.among(c.Work) {
					if queue == "gpumux.small" && large[i] {
						r.Escalate.Add(i)
						continue
					}
					if w.stored[i] {
						return nil, fmt.Errorf("item %d ran although it has a result", i)
					}
					w.stored[i] = true
					r.Succeeded++
				}
				return &r, nil
			}
			env := environment(2 * time.Minute)
			w.register(env)
			env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{
				Task: "square", Source: "sources/x.jsonl", Output: "maps/x/results.jsonl", Ladder: []string{"small", "large"},
			})
			var s gpumux.Summary
			require.NoError(t, env.GetWorkflowResult(&s))
			require.EqualValues(t, items, s.Items)
			if name == "none" {
				row = len(w.chunks)
			}
			require.LessOrEqual(t, len(w.chunks), 3*row+20, "twice for what runs on both rungs, and a little for the ends")
		})
	}
}
