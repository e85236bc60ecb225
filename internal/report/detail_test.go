package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

// A map whose processes still load their model is no map that does nothing.
func TestPrintRunning(t *testing.T) {
	var out strings.Builder
	printRunning(&out, &starter.Detail{Running: []gpumux.RunningItem{
		{Index: -1, Worker: "node/1", Slot: "gpu/0", Device: "GPU-a", For: gpumux.Duration(3 * time.Minute)},
		{Index: 7, Worker: "node/1", Slot: "gpu/1", Device: "GPU-a", For: gpumux.Duration(time.Second), Progress: `{"epoch":3}`},
	}})
	require.Equal(t, "\nrunning\n  a process starts (importing): gpu/0 on GPU-a at node/1 for 3m00s\n"+
		"  item 7: gpu/1 on GPU-a at node/1 for 1.0s, progress {\"epoch\":3}\n", out.String())
}
