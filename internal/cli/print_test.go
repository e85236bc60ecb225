package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestEnding_Print(t *testing.T) {
	oom := &gpumux.Fault{Kind: gpumux.FaultDeviceOOM, Class: "torch.OutOfMemoryError", Message: "CUDA out of memory", Slot: "gpu/0",
		Budget: 8 << 30, Peak: 7900 << 20, Hint: "use a larger pool", Item: `{"image":"a.png"}`}
	raised := &gpumux.Fault{Kind: gpumux.FaultTaskError, Class: "ValueError", Message: "not an image\nat all"}
	r := &ending{ID: "embed-3fa92c01d4e5", File: "vectors.jsonl", Page: "http://127.0.0.1:8233/namespaces/default/workflows/embed-3fa92c01d4e5",
		Summary: gpumux.Summary{Task: "embed", Items: 12345, Succeeded: 12340, Failed: 5, Elapsed: gpumux.Duration(83 * time.Second),
			Faults: map[gpumux.FaultKind]int64{gpumux.FaultTaskError: 2, gpumux.FaultDeviceOOM: 3}},
		Causes: []starter.Cause{{Kind: gpumux.FaultDeviceOOM, Count: 3, Example: gpumux.Result{Index: 7, Fault: oom}}, {Kind: gpumux.FaultTaskError, Count: 1, Example: gpumux.Result{Index: 90, Fault: raised}}},
	}
	var text, data bytes.Buffer
	r.print(&text)
	golden(t, "report", text.String())
	require.NoError(t, printReport(&app{Options: Options{Stdout: &data}}, r, true, ""))
	golden(t, "report_json", data.String())
	text.Reset()
	oom.Task, raised.Task = "embed", "decode"
	r.Stages = []gpumux.StageProgress{
		{Task: "decode", Ladder: []string{"cpu"}, Succeeded: 12343, Failed: 2, Slots: 4, ItemTime: gpumux.Duration(10 * time.Millisecond), Busy: gpumux.Duration(123 * time.Second)},
		{Task: "embed", Ladder: []string{"gpu"}, Succeeded: 12340, Failed: 3, Slots: 1, ItemTime: gpumux.Duration(6 * time.Millisecond), Busy: gpumux.Duration(74 * time.Second)},
	}
	r.print(&text)
	golden(t, "report_stages", text.String())
	require.Equal(t, exitFailed, codeOf(r.exit()))
	require.NoError(t, (&ending{}).exit())
}

func TestLs_Table(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, report.Maps(&b, []starter.MapInfo{
		{ID: "embed-3fa92c01d4e5", Status: starter.StatusRunning, Input: "items.jsonl", Items: 100000, Succeeded: 4500, Failed: 3,
			Started: noon.Add(-95 * time.Second)},
		{ID: "halted", Status: starter.StatusRunning, Paused: true, Items: 7, Succeeded: 1, Started: noon.Add(-95 * time.Second)},
		{ID: "resize-0000000000aa", Status: starter.StatusCompleted, Items: 10, Succeeded: 10, Started: noon.Add(-26 * time.Hour),
			Closed: noon.Add(-25 * time.Hour)},
		{ID: "sweep", Status: starter.StatusTimedOut, Items: -1, Succeeded: -1, Failed: -1, Started: noon.Add(-80 * time.Hour),
			Closed: noon.Add(-79 * time.Hour)},
	}, noon))
	golden(t, "ls", b.String())
}

// On another queue than that of maps no worker helps, whatever it serves.
func TestShow_AMapOnAWrongQueue(t *testing.T) {
	d := &starter.Detail{
		MapInfo: starter.MapInfo{ID: "raw", Status: starter.StatusRunning, Items: -1, Succeeded: -1, Failed: -1, Queue: "gpumux.small"},
		Rungs:   []gpumux.Rung{{Name: "workflows", Queue: "gpumux", Pollers: 1}, {Name: "gpu", Queue: "gpumux.gpu"}},
	}
	var b bytes.Buffer
	report.Detail(&b, d, nil, "", noon)
	require.Contains(t, b.String(), "no worker begins it on the task queue gpumux.small; end it, and start it on gpumux\n")
	require.NotContains(t, b.String(), "no worker serves")
}

func TestShow_Running(t *testing.T) {
	d := &starter.Detail{
		MapInfo: starter.MapInfo{ID: "embed-3fa92c01d4e5", Task: "embed", Status: starter.StatusRunning, Input: "items.jsonl", Items: 1000,
			Succeeded: 400, Failed: 2, Started: time.Now().Add(-time.Minute)},
		Output: "maps/embed-3fa92c01d4e5/00c0ffee/results.jsonl",
		Progress: &gpumux.Progress{Phase: gpumux.PhaseRunning, Items: 1000, Succeeded: 400, Failed: 2, InFlight: 3, Window: 8, Chunk: 50,
			Rate: 6.7, Faults: map[gpumux.FaultKind]int64{gpumux.FaultCrash: 2},
			Recent: []gpumux.Result{{Index: 12, Fault: &gpumux.Fault{Kind: gpumux.FaultCrash, Message: "signal SIGSEGV"}}}},
		Pending: []starter.Pending{{Activity: "gpumux.RunChunk", ID: "17", State: "scheduled", Attempt: 3, Worker: "node1/77",
			Next: noon.Add(4 * time.Second), Fault: &gpumux.Fault{Kind: gpumux.FaultDeviceOOM, Message: "CUDA out of memory"}}},
		Rungs: []gpumux.Rung{{Name: "workflows", Queue: "gpumux", Pollers: 1}, {Name: "gpu", Queue: "gpumux.gpu"}},
	}
	var b bytes.Buffer
	report.Detail(&b, d, nil, "http://127.0.0.1:8233/x", noon)
	text := b.String()
	lines := strings.Split(text, "\n")
	for i, line := range lines { // the only line with the time zone of the machine
		if strings.HasPrefix(line, "started") {
			lines[i] = "started    …"
		}
	}
	golden(t, "show", strings.Join(lines, "\n"))
}

func TestDoctor_Print(t *testing.T) {
	var b bytes.Buffer
	a := &app{Options: Options{Stdout: &b}}
	require.Equal(t, exitFailed, a.tell(t.Context(), []finding{
		{Check: "python", Status: checkGood, Detail: "3.11.7 /usr/bin/python3"},
		{Check: "gpu", Status: checkNote, Detail: "no NVIDIA driver"},
		{Check: "temporal", Status: checkBad, Detail: "127.0.0.1:7233: connection refused", Fix: "start `gpumux dev`"},
	}, false, exitFailed))
	golden(t, "doctor", b.String())
}
