package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/starter"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestReport_Print(t *testing.T) {
	oom := &gpumux.Fault{Kind: gpumux.DeviceOOM, Class: "torch.OutOfMemoryError", Message: "CUDA out of memory", Slot: "gpu/0",
		Budget: 8 << 30, Peak: 7900 << 20, Hint: "use a larger pool", Item: `{"image":"a.png"}`}
	raised := &gpumux.Fault{Kind: gpumux.TaskError, Class: "ValueError", Message: "not an image\nat all"}
	r := &report{ID: "embed-3fa92c01d4e5", File: "vectors.jsonl", Page: "http://127.0.0.1:8233/namespaces/default/workflows/embed-3fa92c01d4e5",
		Summary: gpumux.Summary{Task: "embed", Items: 12345, Succeeded: 12340, Failed: 5, Elapsed: gpumux.Duration(83 * time.Second),
			Faults: map[gpumux.Kind]int64{gpumux.TaskError: 2, gpumux.DeviceOOM: 3}},
		Causes: []starter.Cause{{Count: 3, Example: gpumux.Result{Index: 7, Fault: oom}}, {Count: 1, Example: gpumux.Result{Index: 90, Fault: raised}}},
	}
	var text, data bytes.Buffer
	r.print(&text)
	golden(t, "report", text.String())
	require.NoError(t, r.printJSON(&data))
	golden(t, "report_json", data.String())
	require.Equal(t, ExitFailed, exitCode(r.exit()))
	require.NoError(t, (&report{}).exit())
}

func TestLs_Table(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, printMaps(&b, []starter.Listed{
		{ID: "embed-3fa92c01d4e5", Status: starter.Running, Input: "items.jsonl", Items: 100000, Succeeded: 4500, Failed: 3,
			Started: noon.Add(-95 * time.Second)},
		{ID: "halted", Status: starter.Running, Paused: true, Items: 7, Succeeded: 1, Started: noon.Add(-95 * time.Second)},
		{ID: "resize-0000000000aa", Status: starter.Completed, Items: 10, Succeeded: 10, Started: noon.Add(-26 * time.Hour),
			Closed: noon.Add(-25 * time.Hour)},
		{ID: "sweep", Status: starter.TimedOut, Items: -1, Succeeded: -1, Failed: -1, Started: noon.Add(-80 * time.Hour),
			Closed: noon.Add(-79 * time.Hour)},
	}, noon))
	golden(t, "ls", b.String())
}

func TestShow_Running(t *testing.T) {
	d := &starter.Detail{
		Listed: starter.Listed{ID: "embed-3fa92c01d4e5", Task: "embed", Status: starter.Running, Input: "items.jsonl", Items: 1000,
			Succeeded: 400, Failed: 2, Started: time.Now().Add(-time.Minute)},
		Output: "maps/embed-3fa92c01d4e5/00c0ffee/results.jsonl",
		Progress: &gpumux.Progress{Phase: gpumux.Running, Items: 1000, Succeeded: 400, Failed: 2, InFlight: 3, Window: 8, Chunk: 50,
			Rate: 6.7, Faults: map[gpumux.Kind]int64{gpumux.Crash: 2},
			Recent: []gpumux.Result{{Index: 12, Fault: &gpumux.Fault{Kind: gpumux.Crash, Message: "signal SIGSEGV"}}}},
		Pending: []starter.Pending{{Activity: "gpumux.RunChunk", ID: "17", State: "scheduled", Attempt: 3, Worker: "node1/77",
			Next: noon.Add(4 * time.Second), Fault: &gpumux.Fault{Kind: gpumux.DeviceOOM, Message: "CUDA out of memory"}}},
		Rungs: []starter.Rung{{Name: "workflows", Queue: "gpumux", Pollers: 1}, {Name: "gpu", Queue: "gpumux.gpu"}},
	}
	var b bytes.Buffer
	printDetail(&b, d, nil, "http://127.0.0.1:8233/x", noon)
	text := b.String()
	lines := strings.Split(text, "\n")
	for i, line := range lines { // the only line with the time zone of the machine
		if strings.HasPrefix(line, "started") {
			lines[i] = "started    …"
		}
	}
	golden(t, "show", strings.Join(lines, "\n"))
}

func TestBar_Line(t *testing.T) {
	now := noon
	b := &bar{console: newConsole(&bytes.Buffer{}), now: func() time.Time { return now }}
	p := gpumux.Progress{Task: "embed", Phase: gpumux.Running, Items: 10000, Succeeded: 1000, InFlight: 8}
	b.show(p) // what an earlier run stored does not count for the rate
	now = now.Add(10 * time.Second)
	p.Succeeded, p.Failed = 3950, 50
	var lines []string
	for _, width := range []int{120, 80, 60, 30, 14, 5, 2} {
		line := b.line(p, width)
		require.LessOrEqual(t, len([]rune(line)), width)
		lines = append(lines, line)
	}
	p.Paused = true
	lines = append(lines, b.line(p, 120))
	p.Paused, p.Phase, p.Succeeded = false, gpumux.Merging, 9950
	lines = append(lines, b.line(p, 120), b.line(gpumux.Progress{Task: "embed", Phase: gpumux.Indexing}, 120))
	golden(t, "bar", strings.Join(lines, "\n")+"\n")
}

// What a map did long ago says little of how long it still takes.
func TestBar_RateIsOfTheLastSeconds(t *testing.T) {
	now := noon
	b := &bar{console: newConsole(&bytes.Buffer{}), now: func() time.Time { return now }}
	p := gpumux.Progress{Task: "embed", Phase: gpumux.Running, Items: 100000}
	run := func(seconds int, perSecond int64) string {
		for range seconds {
			now = now.Add(time.Second)
			p.Succeeded += perSecond
			b.show(p)
		}
		return b.text(p)
	}
	b.show(p)
	require.Contains(t, run(60, 10), "  10.0/s  ")
	require.Contains(t, run(12, 500), "  500/s  ")
	require.Contains(t, run(1000, 1), "  1.0/s  ")
	p.Paused = true
	run(500, 0)
	p.Paused = false
	run(1, 0)
	require.Contains(t, run(5, 100), "  100/s  ", "a pause is no time of work")
	for range 3 { // an item a minute
		run(59, 0)
		run(1, 1)
	}
	require.Contains(t, b.text(p), "  1.0/min  ")
	b.retried.Store(3)
	require.Contains(t, b.text(p), "3 tried again")
}

func TestBar_TellsTheFirstFailure(t *testing.T) {
	var out bytes.Buffer
	b := &bar{console: newConsole(&out), now: func() time.Time { return noon }}
	p := gpumux.Progress{Phase: gpumux.Running, Items: 10, Succeeded: 1}
	b.show(p)
	p.Failed = 1
	p.Recent = []gpumux.Result{{Index: 4, Fault: &gpumux.Fault{Kind: gpumux.TaskError, Message: "no", Item: `"x"`}}}
	b.show(p)
	p.Recent = append(p.Recent, gpumux.Result{Index: 5, Fault: &gpumux.Fault{Kind: gpumux.TaskError, Message: "no"}})
	b.show(p)
	require.Equal(t, "a first failure: item 4 = \"x\": task_error: no\n", out.String())
}

func TestBar_PlainLines(t *testing.T) {
	now := noon
	var out bytes.Buffer
	b := &bar{console: newConsole(&out), now: func() time.Time { return now }}
	p := gpumux.Progress{Task: "embed", Phase: gpumux.Running, Items: 100, InFlight: 2}
	for range 120 { // a minute, polled twice a second: progress for 20 s, then a standstill
		if now.Sub(noon) < 20*time.Second {
			p.Succeeded++
		}
		b.show(p)
		now = now.Add(500 * time.Millisecond)
	}
	golden(t, "plain", out.String())
}

func TestConsole_QuietDropsProgressOnly(t *testing.T) {
	var out bytes.Buffer
	c := newConsole(&out)
	c.quiet = true
	newBar(c).show(gpumux.Progress{Phase: gpumux.Running, Items: 1})
	c.note("progress")
	require.Empty(t, out.String())
	c.say("trouble")
	require.Equal(t, "trouble\n", out.String())
}

func TestGpus_Print(t *testing.T) {
	r := &inventoryReport{Devices: []deviceReport{
		{Device: gpu.Device{Index: 0, Kind: gpu.KindGPU, UUID: "GPU-aa", Name: "NVIDIA A100", Memory: 80 << 30},
			Status: &gpu.Status{Memory: gpu.Memory{Total: 80 << 30, Free: 60 << 30}, Utilization: 35, Temperature: 51,
				Processes: []gpu.Process{{PID: 4711, Name: "python3", Memory: 19 << 30}, {PID: 4712}}}},
		{Device: gpu.Device{Index: 1, Kind: gpu.KindGPU, UUID: "GPU-bb", Name: "NVIDIA A100", Memory: 80 << 30, MIG: true},
			Status: &gpu.Status{Utilization: -1, Temperature: -1}},
		{Device: gpu.Device{Index: 1, Instance: 3, Kind: gpu.KindMIG, UUID: "MIG-cc", Name: "NVIDIA A100 MIG 1g.10gb"}, Error: "device lost"},
		{Device: gpu.Device{Index: -1, Kind: gpu.KindCPU, UUID: gpu.CPU, Name: "Xeon", Memory: 64 << 30},
			Status: &gpu.Status{Memory: gpu.Memory{Total: 64 << 30, Free: 32 << 30}, Utilization: -1, Temperature: -1}},
	}, Links: []gpu.Link{{From: "GPU-aa", To: "GPU-bb", Kind: "nvlink", NVLinks: 12, P2P: true}}}
	var b bytes.Buffer
	require.NoError(t, printDevices(&b, r))
	require.NoError(t, printLinks(&b, r))
	golden(t, "gpus", b.String())
}

func TestDoctor_Print(t *testing.T) {
	var b bytes.Buffer
	printFindings(&b, []finding{
		{Check: "python", Verdict: good, Detail: "3.11.7 /usr/bin/python3"},
		{Check: "gpu", Verdict: note, Detail: "no NVIDIA driver"},
		{Check: "temporal", Verdict: bad, Detail: "127.0.0.1:7233: connection refused", Fix: "start `gpumux dev`"},
	})
	golden(t, "doctor", b.String())
}

func TestSpan(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "850ms": 850 * time.Millisecond, "12.3s": 12340 * time.Millisecond, "4m05s": 245 * time.Second,
		"3h20m": 200 * time.Minute, "2d4h": 52 * time.Hour,
	} {
		require.Equal(t, want, span(d))
	}
}
