package report

import (
	"bytes"
	"flag"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/results"
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

var update = flag.Bool("update", false, "write testdata/*.golden anew")

// golden compares text with testdata/name.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name + ".golden"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "go test -update writes it anew")
}

// lines are results as a file of them has them.
func lines(t *testing.T, all ...gpumux.Result) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, r := range all {
			line, err := results.Append(nil, r)
			require.NoError(t, err)
			if !yield(bytes.TrimSuffix(line, []byte("\n")), nil) {
				return
			}
		}
	}
}

func raised(index int64, slot, message string) gpumux.Result {
	return gpumux.Result{Index: index, Fault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Op: "run", Class: "ValueError", Message: message, Slot: slot,
		Device: "CPU", Host: "node1", Item: `{"image":"a.png"}`, Traceback: "Traceback:\n" + strings.Repeat("  a line\n", 9) + "ValueError: " + message}}
}

func crashed(index int64) gpumux.Result {
	return gpumux.Result{Index: index, Fault: &gpumux.Fault{Kind: gpumux.FaultCrash, Op: "run", Message: "the task process ended by signal SIGSEGV",
		Slot: "gpu/3", Device: "GPU-5c89", Host: "node2", Exit: "signal SIGSEGV", Tail: "scoring\nSegmentation fault\n", Hint: "run the item alone"}}
}

func TestFaults_Print(t *testing.T) {
	all := lines(t, gpumux.Result{Index: 0, Value: []byte("1")}, crashed(1), raised(2, "cpu/0", "no image 7"), raised(3, "cpu/1", "no image 8"),
		gpumux.Result{Index: 4, Value: []byte("{}"), Printed: "\"fault\""}, raised(5, "big/0", "no image 9"))
	var causes starter.Causes
	for line, err := range all {
		require.NoError(t, err)
		require.NoError(t, causes.AddLine(line))
	}
	var b bytes.Buffer
	Faults(&b, "embed-3fa92c01d4e5", 6, causes.Sorted(), false)
	golden(t, "faults", b.String())
}
