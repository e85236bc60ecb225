package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/pool"
	"github.com/gpumux/gpumux/workers/slot"
)

const (
	// scrapeLimit is the timeout of a scrape, as when a driver does not answer; scrapesMost how many may run at a time.
	scrapeLimit = 10 * time.Second
	scrapesMost = 4
)

// Metrics are what a worker counts, and the server that shows it in Prometheus's text format. Without an address nothing is served.
type Metrics struct {
	sdk   *instruments
	log   *zap.Logger
	limit time.Duration // of a scrape
	// version is the worker's, health says why it cannot do its work, or nil.
	version string
	health  func() error

	mu     sync.Mutex // not held during calls of a slot, a pool or the driver
	slots  []Slot
	pools  []*pool.Pool
	Faults map[faulty]int64

	server *http.Server
	ended  chan struct{}
}

// Slot is a slot in the metrics.
type Slot struct {
	Pool, Name, Device string
	Runs               *slot.Slot
	Peak               *pool.Peak
}

// faulty is a kind of fault in a pool.
type faulty struct {
	pool string
	kind gpumux.Kind
}

// New counts for a worker of a version; health is why it cannot do its work, or nil.
func New(log *zap.Logger, version string, health func() error) *Metrics {
	return &Metrics{sdk: newInstruments(), log: log, limit: scrapeLimit, version: version, health: health, Faults: map[faulty]int64{}}
}

// Follow adds a slot.
func (m *Metrics) Follow(c Slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slots = append(m.slots, c)
}

// Offer adds a pool.
func (m *Metrics) Offer(p *pool.Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pools = append(m.pools, p)
}

// Fault counts one.
func (m *Metrics) Fault(pool string, kind gpumux.Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Faults[faulty{pool, kind}]++
}

// Serve shows the metrics under /metrics, at the url, and under /healthz whether the worker is well, until stop is called. Status is
// what the driver says of a device.
func (m *Metrics) Serve(address string, devices []gpu.Device, status func(uuid string) (gpu.Status, error)) (url string, err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("serve metrics on %s: %w; set metrics to a free address, or leave it out", address, err)
	}
	all := prometheus.NewRegistry()
	all.MustRegister(m.sdk, &gauges{m, devices, status}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesMost, Timeout: m.limit,
	}))
	mux.HandleFunc("GET /healthz", m.healthz)
	m.server, m.ended = &http.Server{Addr: listener.Addr().String(), Handler: mux, ReadHeaderTimeout: 10 * time.Second}, make(chan struct{})
	go func() {
		defer close(m.ended)
		if err := m.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.log.Error("metrics are served no more", zap.Error(err))
		}
	}()
	url = "http://" + listener.Addr().String() + "/metrics"
	m.log.Info("metrics are served", zap.String("url", url))
	return url, nil
}

// SDK is for the metrics of a Temporal client.
func (m *Metrics) SDK() client.MetricsHandler { return m.sdk }

// healthz answers 200 while this worker can do its work, else 503 with the reasons, a line each.
func (m *Metrics) healthz(to http.ResponseWriter, _ *http.Request) {
	to.Header().Set("Content-Type", "text/plain; charset=utf-8")
	to.Header().Set("Cache-Control", "no-store")
	if err := m.health(); err != nil {
		to.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(to, err)
		return
	}
	fmt.Fprintln(to, "ok")
}

// Stop ends the serving.
func (m *Metrics) Stop(ctx context.Context) error {
	if m.server == nil {
		return nil
	}
	err := m.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop serving metrics: %w", err), m.server.Close())
	}
	<-m.ended
	return err
}

// gauges reads a worker's slots and devices at each scrape.
type gauges struct {
	*Metrics
	devices []gpu.Device
	status  func(uuid string) (gpu.Status, error)
}

var (
	descBuild     = prometheus.NewDesc("gpumux_build_info", "The worker's program; always 1.", []string{"version", "go"}, nil)
	descSlots     = prometheus.NewDesc("gpumux_slots", "Slots by what they do at this moment.", []string{"pool", "device", "state"}, nil)
	descOpen      = prometheus.NewDesc("gpumux_slots_open", "Slots that may run calls at this moment.", []string{"pool"}, nil)
	descItems     = prometheus.NewDesc("gpumux_items_total", "Items that ended in a slot.", []string{"pool", "slot"}, nil)
	descProcesses = prometheus.NewDesc("gpumux_processes_total", "Task processes that were started.", []string{"pool", "slot"}, nil)
	descTrims     = prometheus.NewDesc("gpumux_trims_total", "Clean-ups between items.", []string{"pool", "slot"}, nil)
	descFreed     = prometheus.NewDesc("gpumux_freed_bytes_total", "Memory that clean-ups gave back.", []string{"pool", "slot"}, nil)
	descPeak      = prometheus.NewDesc("gpumux_peak_bytes", "The most that an item held where that was measured.", []string{"pool", "slot"}, nil)
	descRecycles  = prometheus.NewDesc("gpumux_recycles_total", "Processes that were replaced although they could go on.", []string{"pool", "slot", "reason"}, nil)
	descFaults    = prometheus.NewDesc("gpumux_faults_total", "Faults of items after their attempts, and of whole calls.", []string{"pool", "kind"}, nil)
	descFree      = prometheus.NewDesc("gpumux_device_free_bytes", "Device memory that can be allocated now.", []string{"device", "model"}, nil)
	descTotal     = prometheus.NewDesc("gpumux_device_total_bytes", "Device memory.", []string{"device", "model"}, nil)
)

// Describe implements prometheus.Collector: nothing is checked in advance.
func (g *gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	value := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	value(descBuild, prometheus.GaugeValue, 1, g.version, runtime.Version())
	g.mu.Lock()
	slots, pools, faults := slices.Clone(g.slots), slices.Clone(g.pools), maps.Clone(g.Faults)
	g.mu.Unlock()
	type at struct {
		pool, device string
		state        slot.State
	}
	states := map[at]int{}
	for _, c := range slots {
		for _, state := range slot.States() {
			states[at{c.Pool, c.Device, state}] += 0
		}
		states[at{c.Pool, c.Device, c.Runs.State()}]++
		stats := c.Runs.Stats()
		value(descItems, prometheus.CounterValue, float64(stats.Items), c.Pool, c.Name)
		value(descProcesses, prometheus.CounterValue, float64(stats.Processes), c.Pool, c.Name)
		value(descTrims, prometheus.CounterValue, float64(stats.Trims), c.Pool, c.Name)
		value(descFreed, prometheus.CounterValue, float64(stats.Freed), c.Pool, c.Name)
		// For Prometheus a counter that first appears as 1 never rose.
		for _, reason := range slot.Recycles() {
			value(descRecycles, prometheus.CounterValue, float64(stats.Recycled[reason]), c.Pool, c.Name, reason)
		}
		value(descPeak, prometheus.GaugeValue, float64(c.Peak.Bytes()), c.Pool, c.Name)
	}
	for a, n := range states {
		value(descSlots, prometheus.GaugeValue, float64(n), a.pool, a.device, string(a.state))
	}
	for _, p := range pools {
		value(descOpen, prometheus.GaugeValue, float64(p.Slots("")), p.Name)
		for _, kind := range gpumux.Kinds() {
			value(descFaults, prometheus.CounterValue, float64(faults[faulty{p.Name, kind}]), p.Name, string(kind))
		}
	}
	for _, d := range g.devices {
		if status, err := g.status(d.UUID); err == nil && status.Memory.Total > 0 {
			value(descFree, prometheus.GaugeValue, float64(status.Memory.Free), d.UUID, d.Name)
			value(descTotal, prometheus.GaugeValue, float64(status.Memory.Total), d.UUID, d.Name)
		}
	}
}
