package workers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/gpu/gputest"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/contact"
	"github.com/gpumux/gpumux/workers/pool"
)

// shown serves the metrics and returns what a scrape finds.
func shown(t *testing.T, m *metrics, inventory *gpu.Inventory) func() string {
	t.Helper()
	url := served(t, m, inventory.Devices(), inventory.Status)
	return func() string {
		code, text := scraped(t, url)
		require.Equal(t, http.StatusOK, code, "%s", text)
		return text
	}
}

// served serves the metrics and returns where.
func served(t *testing.T, m *metrics, devices []gpu.Device, status func(string) (gpu.Status, error)) string {
	t.Helper()
	core, seen := observer.New(zap.InfoLevel)
	m.log = zap.New(core)
	require.NoError(t, m.serve("127.0.0.1:0", devices, status))
	t.Cleanup(func() { require.NoError(t, m.stop(context.Background())) })
	return seen.FilterMessage("metrics are served").All()[0].ContextMap()["url"].(string)
}

// scraped is the answer to one scrape.
func scraped(t *testing.T, url string) (code int, text string) {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

// A driver that does not answer holds up scrapes, up to a few and for a while, and no slot that counts a fault.
func TestMetrics_ADriverThatHangs(t *testing.T) {
	m := newMetrics(zap.NewNop())
	m.limit = 20 * time.Millisecond
	asked, answer := make(chan struct{}, 2*scrapesMost), make(chan struct{})
	defer close(answer)
	url := served(t, m, []gpu.Device{{UUID: "GPU-1"}}, func(string) (gpu.Status, error) {
		asked <- struct{}{}
		<-answer
		return gpu.Status{}, nil
	})
	for range scrapesMost {
		code, text := scraped(t, url)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Contains(t, text, "configured timeout")
		<-asked
		counted := make(chan struct{})
		go func() { m.fault("cpu", gpumux.Crash); close(counted) }()
		select {
		case <-counted:
		case <-time.After(time.Minute):
			t.Fatal("a fault waits for the driver")
		}
	}
	code, text := scraped(t, url)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, "Limit of concurrent requests reached")
	require.Empty(t, asked, "the driver is not asked again")
}

// What real slots did, and what the driver says, as a scrape finds it.
func TestMetrics_OfSlotsAndDevices(t *testing.T) {
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Total: 80 << 30, Free: 50 << 30}}})
	inventory, err := gpu.Open(gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	b := newWorkbench(t, nil, false)
	m := newMetrics(b.to)
	for _, name := range []string{"cpu/0", "cpu/1"} {
		m.follow(counted{"cpu", name, gpu.CPU, b.slot(gpu.CPU, 0), &pool.Peak{}})
	}
	_, err = run(m.slots[0].slot, b.task("hold"), same(block{MB: 10}, 3)...)
	require.NoError(t, err)
	m.slots[0].peak.Take(30 << 20)
	m.slots[0].peak.Take(20 << 20)
	p, _, _ := testPool(4, "A", "B")
	m.fault(p.Name, gpumux.Crash)
	m.fault(p.Name, gpumux.Crash)
	p.Resize(3, 3)
	p.Cordon("B", "lost")
	m.offer(p)
	scrape := shown(t, m, inventory)
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
		`gpumux_recycles_total{pool="cpu",reason="leak",slot="cpu/0"} 0`,
		`gpumux_device_free_bytes{device="GPU-00000000-0000-0000-0000-000000000000",model="NVIDIA Test GPU"} 5.36870912e+10`,
	} {
		require.Contains(t, text, line+"\n")
	}
	machine.Update(func(s *gputest.State) { s.GPUs[0].Lost = true })
	text = scrape()
	require.NotContains(t, text, "GPU-00000000", "a lost device has no memory to tell of")
	require.Contains(t, text, "gpumux_items_total", "and hides nothing else")
}

// The SDK tags one name differently in different places.
func TestMetrics_OfTheSDK(t *testing.T) {
	inventory, err := gpu.Open(gpu.Options{NoNVML: true})
	require.NoError(t, err)
	m := newMetrics(zap.NewNop())
	scrape := shown(t, m, inventory)
	for range 3 {
		m.sdk.WithTags(map[string]string{"a": "1"}).Counter("temporal_request").Inc(1)
	}
	m.sdk.WithTags(map[string]string{"a": "1"}).WithTags(map[string]string{"a": "2", "b": "x"}).Counter("temporal_request").Inc(5)
	m.sdk.Gauge("temporal_pollers").Update(7)
	m.sdk.Gauge("temporal_pollers").Update(2)
	for _, took := range []time.Duration{200 * time.Microsecond, 20 * time.Millisecond, time.Hour} {
		m.sdk.Timer("temporal_latency").Record(took)
	}
	text := scrape()
	for _, line := range []string{
		`temporal_request_total{a="1"} 3`, `temporal_request_total{a="2",b="x"} 5`, `temporal_pollers 2`,
		`temporal_latency_seconds_bucket{le="0.001"} 1`, `temporal_latency_seconds_bucket{le="0.05"} 2`,
		`temporal_latency_seconds_bucket{le="600"} 2`, `temporal_latency_seconds_bucket{le="+Inf"} 3`, `temporal_latency_seconds_count 3`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.True(t, strings.Contains(text, "temporal_latency_seconds_sum 3600.0202\n"))
}

func TestMetrics_Address(t *testing.T) {
	for text, want := range map[string]string{":9464": "127.0.0.1:9464", "0.0.0.0:1": "0.0.0.0:1", "[::1]:9464": "[::1]:9464"} {
		got, err := config.MetricsAddress(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"9464", "localhost", "a:b", "127.0.0.1:70000"} {
		_, err := config.MetricsAddress(text)
		require.ErrorContains(t, err, "write 127.0.0.1:9464", text)
	}
	m := newMetrics(zap.NewNop())
	inventory, err := gpu.Open(gpu.Options{NoNVML: true})
	require.NoError(t, err)
	shown(t, m, inventory)
	err = newMetrics(zap.NewNop()).serve(m.server.Addr, nil, nil)
	require.ErrorContains(t, err, "set metrics to a free address, or leave it out")
}

// A worker that cannot do its work says why to whoever probes it.
func TestMetrics_HealthSaysWhy(t *testing.T) {
	w := &Worker{}
	now := time.Hour
	w.contact = contact.New(nil, func() time.Duration { return now }, zap.NewNop())
	m := newMetrics(zap.NewNop())
	m.health = w.health
	url := strings.Replace(served(t, m, nil, nil), "/metrics", "/healthz", 1)
	expect := func(want int, lines ...string) {
		t.Helper()
		code, text := scraped(t, url)
		require.Equal(t, want, code)
		require.Equal(t, strings.Join(lines, "\n")+"\n", text)
	}
	expect(http.StatusServiceUnavailable, "the worker is starting")
	w.well.serving.Store(true)
	expect(http.StatusOK, "ok")
	now += contact.Lease + 2*time.Second
	w.well.end(errors.New("queue gpumux is served no more: gone"))
	expect(http.StatusServiceUnavailable, "queue gpumux is served no more: gone", "the Temporal server has not answered for 9s")
	w.well.stopping.Store(true)
	expect(http.StatusServiceUnavailable, "the worker is stopping")
}
