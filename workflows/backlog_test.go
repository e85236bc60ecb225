package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// What is in flight counts to the rung that has it, what waits to the rung that it asks
// for, and what segments have as they tell.
func TestMapping_Backlog(t *testing.T) {
	in := gpumux.MapInput{Task: "t", Ladder: []string{"gpu", "big@node1/GPU-a", "cpu"}}
	m := &mapping{in: in, engine: newEngine("m", in, 100)}
	require.Equal(t, []gpumux.RungBacklog{{Rung: "gpu", Items: 100}}, m.progress(m.started).Backlog)

	m.engine.todo = contract.Backlog{{Work: contract.Whole(70)}, {Work: contract.Whole(5), Rung: 1}}
	m.engine.ladder.rungs[0].placed = []*placement{{items: 10}, {items: 3}}
	m.segments.open = map[string]*segmentRun{"m.segment-1": {last: segmentStatus{Left: []int64{10, 2, 0}}}}
	require.Equal(t, []gpumux.RungBacklog{{Rung: "gpu", Items: 93}, {Rung: "big@node1/GPU-a", Items: 7}}, m.progress(m.started).Backlog)
}
