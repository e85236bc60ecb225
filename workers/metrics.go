package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/health"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/slot"
)

const (
	// scrapeLimit bounds a scrape, maxScrapes how many run at a time.
	scrapeLimit = 10 * time.Second
	maxScrapes  = 4
	maxFields   = 16 // of a report of progress
)

type metrics struct {
	registry *prometheus.Registry
	sdk      client.MetricsHandler
	log      *zap.Logger
	limit    time.Duration // of a scrape
	// version is the worker's. starts says why it has not started, health why it cannot do
	// its work.
	version        string
	starts, health func() error

	mu    sync.Mutex // not held during calls of a slot, a pool or the driver
	pools []*pool.Pool

	faults, cordons *prometheus.CounterVec
	items           *prometheus.HistogramVec
	backlog, work   *prometheus.GaugeVec
	store           prometheus.Counter

	server *http.Server
	ended  chan struct{}
}

// Upper bounds in seconds.
var (
	itemBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	sdkBuckets  = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60, 600} // polls last up to a minute
)

// newMetrics counts for a worker of a version. Its server asks starts why the worker has
// not started yet, and health why it cannot do its work.
func newMetrics(log *zap.Logger, version string, starts, health func() error) *metrics {
	registry := prometheus.NewRegistry()
	return &metrics{
		registry: registry, sdk: sdkMetrics(registry), log: log, limit: scrapeLimit, version: version, starts: starts, health: health,
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpumux_faults_total", Help: "Faults of items after their attempts, and of whole calls.",
		}, []string{"pool", "kind"}),
		cordons: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gpumux_cordons_total", Help: "Devices that were cordoned.",
		}, []string{"pool", "reason"}),
		items: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gpumux_item_seconds", Help: "What items took in the task process.", Buckets: itemBuckets,
		}, []string{"pool"}),
		backlog: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpumux_backlog_items", Help: "Items of running maps without a result.",
		}, []string{"pool"}),
		work: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "gpumux_backlog_seconds", Help: "The work of the backlog for one slot, as far as it is known.",
		}, []string{"pool"}),
		store: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gpumux_store_errors_total", Help: "Writes of results that the store refused or did not answer.",
		}),
	}
}

// sdkMetrics hands the Temporal SDK's metrics to Prometheus, under the SDK's names.
func sdkMetrics(registry *prometheus.Registry) client.MetricsHandler {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		panic(err) // the registry has no other collector
	}
	timers := sdkmetric.NewView(sdkmetric.Instrument{Kind: sdkmetric.InstrumentKindHistogram},
		sdkmetric.Stream{Aggregation: sdkmetric.AggregationExplicitBucketHistogram{Boundaries: sdkBuckets}})
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithView(timers))
	return opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{Meter: provider.Meter("temporal"), UseMonotonicCounters: true})
}

// Offer adds a pool. Its counters are there from the start, as 0.
func (m *metrics) Offer(p *pool.Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pools = append(m.pools, p)
	m.items.WithLabelValues(p.Name)
	for _, kind := range gpumux.Kinds() {
		m.faults.WithLabelValues(p.Name, string(kind))
	}
	for _, reason := range health.Reasons() {
		m.cordons.WithLabelValues(p.Name, reason)
	}
}

func (m *metrics) Fault(pool string, kind gpumux.FaultKind) {
	m.faults.WithLabelValues(pool, string(kind)).Inc()
}

func (m *metrics) Cordoned(pool, reason string) { m.cordons.WithLabelValues(pool, reason).Inc() }

// Serve shows the metrics under /metrics, at the url, under /healthz whether the worker
// can work, under /startz whether it has started, and under /livez that it runs.
func (m *metrics) Serve(address string, devices []gpu.Device, inventory driver) (url string, err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("serve metrics on %s: %w; set metrics to a free address, or leave it out", address, err)
	}
	url = "http://" + listener.Addr().String() + "/metrics"
	m.registry.MustRegister(m.faults, m.cordons, m.items, m.backlog, m.work, m.store, &slotGauges{m, devices, inventory}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: m.limit,
	}))
	mux.Handle("GET /healthz", answerProbe(m.health))
	mux.Handle("GET /startz", answerProbe(m.starts))
	mux.HandleFunc("GET /livez", func(to http.ResponseWriter, _ *http.Request) { fmt.Fprintln(to, "ok") })
	m.server, m.ended = &http.Server{Addr: listener.Addr().String(), Handler: mux, ReadHeaderTimeout: 10 * time.Second}, make(chan struct{})
	go func() {
		defer close(m.ended)
		if err := m.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			m.log.Error("metrics are served no more", zap.Error(err))
		}
	}()
	m.log.Info("metrics are served", zap.String("url", url))
	return url, nil
}

// answerProbe answers 200 while check is nil, else 503 with its reason.
func answerProbe(check func() error) http.HandlerFunc {
	return func(to http.ResponseWriter, _ *http.Request) {
		to.Header().Set("Content-Type", "text/plain; charset=utf-8")
		to.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			to.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(to, err)
			return
		}
		fmt.Fprintln(to, "ok")
	}
}

func (m *metrics) Stop(ctx context.Context) error {
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

type slotGauges struct {
	*metrics
	devices []gpu.Device
	driver
}

// driver is what a gpu.Inventory says of a device.
type driver interface {
	Status(uuid string) (gpu.Status, error)
	Load(uuid string) (gpu.Load, error)
}

var (
	descBuild     = prometheus.NewDesc("gpumux_build_info", "The worker's program; always 1.", []string{"version", "go"}, nil)
	descSlots     = prometheus.NewDesc("gpumux_slots", "Slots by what they do at this moment.", []string{"pool", "device", "state"}, nil)
	descOpen      = prometheus.NewDesc("gpumux_slots_open", "Slots that may run calls at this moment.", []string{"pool"}, nil)
	descItems     = prometheus.NewDesc("gpumux_items_total", "Items that ended in a slot.", []string{"pool", "slot"}, nil)
	descProcesses = prometheus.NewDesc("gpumux_processes_total", "Task processes that were started.", []string{"pool", "slot"}, nil)
	descPeak      = prometheus.NewDesc("gpumux_peak_bytes", "The most that an item held where that was measured.", []string{"pool", "slot"}, nil)
	descProgress  = prometheus.NewDesc("gpumux_progress", "Numbers that the running item, or its process, reported last.", []string{"pool", "slot", "name"}, nil)
	descRecycles  = prometheus.NewDesc("gpumux_recycles_total", "Processes that were replaced although they could go on.", []string{"pool", "slot", "reason"}, nil)
	descCordoned  = prometheus.NewDesc("gpumux_device_cordoned", "1 while a device gets no new calls.", []string{"pool", "device"}, nil)
	descFree      = prometheus.NewDesc("gpumux_device_free_bytes", "Device memory that can be allocated now.", []string{"device", "model"}, nil)
	descTotal     = prometheus.NewDesc("gpumux_device_total_bytes", "Device memory.", []string{"device", "model"}, nil)
	// What NVIDIA's exporter of DCGM shows as well has its names, units and labels.
	descUtil   = prometheus.NewDesc("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", []string{"gpu", "UUID", "modelName"}, nil)
	descPower  = prometheus.NewDesc("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", []string{"gpu", "UUID", "modelName"}, nil)
	descEnergy = prometheus.NewDesc("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", []string{"gpu", "UUID", "modelName"}, nil)
)

// Describe implements prometheus.Collector: nothing is checked in advance.
func (g *slotGauges) Describe(chan<- *prometheus.Desc) {}

func (g *slotGauges) Collect(to chan<- prometheus.Metric) {
	value := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	value(descBuild, prometheus.GaugeValue, 1, g.version, runtime.Version())
	g.mu.Lock()
	pools := slices.Clone(g.pools)
	g.mu.Unlock()
	for _, p := range pools {
		showSlots(value, p)
		value(descOpen, prometheus.GaugeValue, float64(p.Load().Slots), p.Name)
	}
	for _, d := range g.devices {
		status, err := g.Status(d.UUID)
		if err != nil {
			continue
		}
		if status.Memory.Total > 0 {
			value(descFree, prometheus.GaugeValue, float64(status.Memory.Free), d.UUID, d.Name)
			value(descTotal, prometheus.GaugeValue, float64(status.Memory.Total), d.UUID, d.Name)
		}
		if load, err := g.Load(d.UUID); err == nil {
			labels := []string{strconv.Itoa(d.Index), d.UUID, d.Name}
			value(descUtil, prometheus.GaugeValue, 100*load.Computing, labels...)
			if load.Power >= 0 {
				value(descPower, prometheus.GaugeValue, load.Power, labels...)
			}
			if load.Energy > 0 {
				value(descEnergy, prometheus.CounterValue, 1000*load.Energy, labels...)
			}
		}
	}
}

func showSlots(value func(*prometheus.Desc, prometheus.ValueType, float64, ...string), p *pool.Pool) {
	devices := map[string]map[slot.State]int{}
	p.Each(func(h *pool.Seat, _ string) {
		if devices[h.Group] == nil {
			devices[h.Group] = map[slot.State]int{}
		}
		devices[h.Group][h.State()]++
		stats := h.Stats()
		value(descItems, prometheus.CounterValue, float64(stats.Items), p.Name, h.Name)
		value(descProcesses, prometheus.CounterValue, float64(stats.Processes), p.Name, h.Name)
		// For Prometheus a counter that first appears as 1 never rose.
		for _, reason := range slot.Recycles() {
			value(descRecycles, prometheus.CounterValue, float64(stats.Recycled[reason]), p.Name, h.Name, reason)
		}
		value(descPeak, prometheus.GaugeValue, float64(h.Peak()), p.Name, h.Name)
		if stats.Running != nil {
			var fields map[string]any
			_ = json.Unmarshal([]byte(stats.Running.Progress), &fields) // what is no object has no numbers
			for i, name := range slices.Sorted(maps.Keys(fields)) {
				if number, is := fields[name].(float64); is && i < maxFields {
					value(descProgress, prometheus.GaugeValue, number, p.Name, h.Name, name)
				}
			}
		}
	})
	for device, states := range devices {
		for _, state := range slot.States() {
			value(descSlots, prometheus.GaugeValue, float64(states[state]), p.Name, device, string(state))
		}
		if device != gpu.CPU {
			cordoned := 0.0
			if p.Cordoned(device) {
				cordoned = 1
			}
			value(descCordoned, prometheus.GaugeValue, cordoned, p.Name, device)
		}
	}
}

const backlogEvery = 15 * time.Second

// followBacklog keeps what the running maps have to do in the pools of the file among the
// metrics, until ctx ends. While a map is silent no value falls, so that an autoscaler
// takes no worker away because of that.
func (w *Worker) followBacklog(ctx context.Context) {
	f := &fleet.Fleet{Client: w.client, Namespace: w.namespace}
	for had := map[string]fleet.Backlog{}; len(w.config.Backlog) > 0; {
		all, silent, err := f.Backlog(ctx)
		if ctx.Err() == nil && (err != nil || silent != nil) {
			w.log.Warn("the backlog is not known in full; its metrics do not fall", zap.Strings("silent", silent), zap.Error(err))
		}
		for _, pool := range w.config.Backlog {
			if b := all[pool]; err == nil && (silent == nil || b.Items > had[pool].Items) {
				had[pool] = b
				w.metrics.backlog.WithLabelValues(pool).Set(float64(b.Items))
				w.metrics.work.WithLabelValues(pool).Set(b.Seconds)
			}
		}
		select {
		case <-time.After(backlogEvery):
		case <-ctx.Done():
			return
		}
	}
}
