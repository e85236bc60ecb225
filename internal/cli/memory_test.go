package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
)

func TestMemory_IsShownWhereItWasMeasured(t *testing.T) {
	peak := &gpumux.Peaks{Budget: 8 << 30}
	for range 99 {
		peak.Add(1 << 30)
	}
	peak.Add(34 << 30 / 10)
	const want = "peak per item: p50 1.1GiB, p99 1.1GiB, max 3.4GiB of 8GiB; memory: 4GiB would do\n"

	var b bytes.Buffer
	(&ending{Summary: gpumux.Summary{Items: 100, Succeeded: 100, Peak: peak}}).print(&b)
	require.Contains(t, b.String(), "  memory     "+want)
	b.Reset()
	(&ending{Summary: gpumux.Summary{Items: 100, Succeeded: 100}}).print(&b)
	require.NotContains(t, b.String(), "memory")

	for _, d := range []*starter.Detail{
		{MapInfo: starter.MapInfo{Status: starter.StatusRunning}, Progress: &gpumux.Progress{Peak: peak}},
		{MapInfo: starter.MapInfo{Status: starter.StatusCompleted}, Summary: &gpumux.Summary{Peak: peak}},
	} {
		b.Reset()
		report.Detail(&b, d, nil, "", noon)
		require.Contains(t, b.String(), "memory     "+want)
	}
}
