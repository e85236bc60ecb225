package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// Failures and their kinds are of the whole map while its segments run, and what segments
// have told so far is not booked.
func TestMapping_ProgressIsOfTheSegmentsToo(t *testing.T) {
	in := gpumux.MapInput{Task: "t"}
	m := &mapping{in: in, engine: newEngine("m", in, 100), phase: gpumux.PhaseRunning}
	failed := func(indices ...int64) (all []gpumux.Result) {
		for _, i := range indices {
			all = append(all, gpumux.Result{Index: i, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError}})
		}
		return all
	}
	faults := map[gpumux.FaultKind]int64{gpumux.FaultTaskError: 2}
	m.engine.first().tally.add(contract.ChunkResult{Counts: contract.Counts{Failed: 2, Faults: faults}})
	m.engine.failures.add(failed(1, 2))
	m.segments.open = map[string]*segmentRun{
		"m.segment-1": {last: segmentStatus{Stages: []stageStatus{{Counts: contract.Counts{Failed: 3, Faults: map[gpumux.FaultKind]int64{gpumux.FaultTaskError: 1, gpumux.FaultCrash: 2}}, Raised: 4}}, Recent: failed(10, 11, 12)}},
		"m.segment-2": {last: segmentStatus{Stages: []stageStatus{{Counts: contract.Counts{Failed: 1, Faults: map[gpumux.FaultKind]int64{gpumux.FaultCrash: 1}}, Raised: 1}}, Recent: failed(20)}},
	}
	for range 2 {
		p := m.progress(m.started)
		require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultTaskError: 3, gpumux.FaultCrash: 3}, p.Faults)
		require.EqualValues(t, 6, p.Failed)
		require.EqualValues(t, 5, p.Waiting)
		require.Equal(t, failed(2, 10, 11, 12, 20), p.Recent)
	}
	require.Equal(t, failed(1, 2), m.engine.failures.recent)

	m.engine.failures.add(failed(10, 11, 12))
	require.Equal(t, failed(1, 2, 10, 11, 12), m.engine.carry().Recent, "the next run knows them")
}
