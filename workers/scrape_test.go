package workers

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

const tellPy = `
import gpumux, os, time
def tell(x):
    gpumux.progress({"vllm:num_requests_running": 3, "_n": 0.5, "text": "4", "yes": True, "none": None, "deep": {"n": 5}, **{f"z{i}": i for i in range(10, 21)}})
    while not os.path.exists("open"): time.sleep(0.005)
    return x
`

// What real slots did, and what the driver says, as a scrape finds it.
func TestMetrics_OfSlotsAndDevices(t *testing.T) {
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Total: 80 << 30, Free: 50 << 30, Utilization: 25, Milliwatts: 71500}}})
	inventory, err := gpu.Open(t.Context(), gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	dir := site(t)
	runtime, err := runtimes.Python(filepath.Join(dir, "runtime"))
	require.NoError(t, err)
	onCPU := func() *slot.Slot {
		s := slot.New(slot.Options{Device: gpu.CPU, Runtime: runtime, Grace: time.Second})
		t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
		return s
	}
	m := newMetrics(zap.NewNop(), "", nil, nil)
	first := &pool.Seat{Slot: onCPU(), Name: "cpu/0", Group: gpu.CPU}
	m.Offer(pool.NewLedger().New("cpu", []*pool.Seat{first, {Slot: onCPU(), Name: "cpu/1", Group: gpu.CPU}}))
	require.NoError(t, first.Run(t.Context(), launch.Task{Name: "embed", Python: "embed.py:embed", Dir: dir}, slot.Call{Work: &gputest.Work{From: func(yield func(calls.Item, error) bool) {
		for i := range 3 {
			if !yield(calls.Item{Index: int64(i), Value: []byte("1")}, nil) {
				return
			}
		}
	}}}))
	first.ObservePeak(30 << 20)
	first.ObservePeak(20 << 20)
	p, _, _ := testPool(4, "A", "B")
	m.Fault(p.Name, gpumux.FaultCrash)
	m.Fault(p.Name, gpumux.FaultCrash)
	p.Resize(3)
	p.Cordon("B", "lost")
	m.Offer(p)
	m.Cordoned(p.Name, "probe")
	m.store.Inc()
	for _, seconds := range []float64{0.0008, 0.02, 7200} {
		m.items.WithLabelValues(p.Name).Observe(seconds)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tell.py"), []byte(tellPy), 0o644))
	second, ended := &pool.Seat{Slot: onCPU(), Name: "tell/0", Group: gpu.CPU}, make(chan error, 1)
	m.Offer(pool.NewLedger().New("tell", []*pool.Seat{second}))
	go func() {
		ended <- second.Run(t.Context(), launch.Task{Name: "tell", Python: "tell.py:tell", Dir: dir}, slot.Call{Work: &gputest.Work{From: gputest.Values(1)}})
	}()
	require.Eventually(t, func() bool { r := second.Stats().Running; return r != nil && r.Progress != "" }, time.Minute, time.Millisecond)
	url := serving(t, m, inventory.Devices(), inventory)
	scrape := func() string {
		code, text := answered(t, url)
		require.Equal(t, http.StatusOK, code, "%s", text)
		return text
	}
	text := scrape()
	for _, line := range []string{
		`gpumux_slots_open{pool="` + p.Name + `"} 3`,
		`gpumux_slots{device="CPU",pool="cpu",state="ready"} 1`,
		`gpumux_slots{device="CPU",pool="cpu",state="vacant"} 1`,
		`gpumux_slots{device="CPU",pool="cpu",state="busy"} 0`,
		`gpumux_items_total{pool="cpu",slot="cpu/0"} 3`,
		`gpumux_items_total{pool="cpu",slot="cpu/1"} 0`,
		`gpumux_processes_total{pool="cpu",slot="cpu/0"} 1`,
		`gpumux_peak_bytes{pool="cpu",slot="cpu/0"} 3.145728e+07`,
		`gpumux_faults_total{kind="crash",pool="` + p.Name + `"} 2`,
		`gpumux_faults_total{kind="timeout",pool="` + p.Name + `"} 0`,
		`gpumux_recycles_total{pool="cpu",reason="full",slot="cpu/0"} 0`,
		`gpumux_device_cordoned{device="A",pool="` + p.Name + `"} 0`,
		`gpumux_device_cordoned{device="B",pool="` + p.Name + `"} 1`,
		`gpumux_cordons_total{pool="` + p.Name + `",reason="probe"} 1`,
		`gpumux_cordons_total{pool="` + p.Name + `",reason="full"} 0`,
		`gpumux_store_errors_total 1`,
		`gpumux_item_seconds_bucket{pool="` + p.Name + `",le="0.001"} 1`,
		`gpumux_item_seconds_bucket{pool="` + p.Name + `",le="0.025"} 2`,
		`gpumux_item_seconds_bucket{pool="` + p.Name + `",le="3600"} 2`,
		`gpumux_item_seconds_count{pool="` + p.Name + `"} 3`,
		`gpumux_device_free_bytes{device="GPU-00000000-0000-0000-0000-000000000000",model="NVIDIA Test GPU"} 5.36870912e+10`,
		`DCGM_FI_DEV_GPU_UTIL{UUID="GPU-00000000-0000-0000-0000-000000000000",gpu="0",modelName="NVIDIA Test GPU"} 25`,
		`DCGM_FI_DEV_POWER_USAGE{UUID="GPU-00000000-0000-0000-0000-000000000000",gpu="0",modelName="NVIDIA Test GPU"} 71.5`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.Contains(t, text, `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="GPU-`)
	require.Contains(t, text, `gpumux_progress{name="_n",pool="tell",slot="tell/0"} 0.5`+"\n")
	require.Contains(t, text, `gpumux_progress{name="vllm:num_requests_running",pool="tell",slot="tell/0"} 3`+"\n")
	require.Equal(t, 12, strings.Count(text, "gpumux_progress{"), "the numbers of the first 16 fields")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), nil, 0o644))
	require.NoError(t, <-ended)
	machine.Update(func(s *gputest.State) { s.GPUs[0].Lost = true })
	text = scrape()
	require.NotContains(t, text, "gpumux_progress{")
	require.NotContains(t, text, "GPU-00000000", "a lost device has no memory to tell of")
	require.Contains(t, text, "gpumux_items_total", "and hides nothing else")
}

// historian answers questions for a server whose services may be away.
type historian struct {
	client.Client
	history, matching error
}

func (h *historian) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, h.history
}

func (h *historian) DescribeTaskQueue(context.Context, string, enums.TaskQueueType) (*workflowservice.DescribeTaskQueueResponse, error) {
	return nil, h.matching
}

// A worker that cannot do its work says why to whoever probes it.
func TestMetrics_HealthSaysWhy(t *testing.T) {
	w := &Worker{}
	w.life, w.end = context.WithCancel(t.Context())
	server := &historian{}
	w.client = server
	m := newMetrics(zap.NewNop(), "", w.starts, w.health)
	url := serving(t, m, nil, nil)
	alive := strings.Replace(url, "/metrics", "/livez", 1)
	url = strings.Replace(url, "/metrics", "/healthz", 1)
	expect := func(want int, line string) {
		t.Helper()
		code, text := answered(t, url)
		require.Equal(t, want, code)
		require.Equal(t, line+"\n", text)
	}
	expect(http.StatusServiceUnavailable, "the worker is starting")
	w.serves.Store(true)
	expect(http.StatusOK, "ok")
	server.history = status.Error(codes.Unavailable, "shard status unknown")
	expect(http.StatusOK, "ok") // one question a second serves all who ask
	w.asking.at = time.Time{}
	expect(http.StatusServiceUnavailable, "the Temporal server has not answered within 2s: "+server.history.Error())
	server.history, server.matching, w.asking.at = serviceerror.NewNotFound("no workflow"), status.Error(codes.Unavailable, "no matching host"), time.Time{}
	expect(http.StatusServiceUnavailable, "the Temporal server has not answered within 2s: "+server.matching.Error())
	w.end()
	expect(http.StatusServiceUnavailable, "the worker is stopping")
	started, _ := answered(t, strings.Replace(url, "/healthz", "/startz", 1))
	require.Equal(t, http.StatusOK, started, "it had started")
	code, text := answered(t, alive)
	require.Equal(t, http.StatusOK, code, "the program turns")
	require.Equal(t, "ok\n", text)
}
