package workers

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// instruments hand the Temporal SDK's metrics to Prometheus, under the SDK's names. The
// SDK gives one name different tags, so a series is a name with its tags.
type instruments struct {
	tags   map[string]string
	series *series
}

type series struct {
	mu  sync.Mutex
	all map[string]prometheus.Collector
}

// sdkBuckets are the upper bounds of timers, in seconds; polls last up to a minute.
var sdkBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600}

// WithTags implements client.MetricsHandler.
func (m *instruments) WithTags(tags map[string]string) client.MetricsHandler {
	all := map[string]string{}
	maps.Copy(all, m.tags)
	maps.Copy(all, tags)
	return &instruments{all, m.series}
}

// Counter implements client.MetricsHandler.
func (m *instruments) Counter(name string) client.MetricsCounter {
	return counter{instrument(m, strings.TrimSuffix(name, "_total")+"_total", func(o prometheus.Opts) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(o))
	})}
}

// Gauge implements client.MetricsHandler.
func (m *instruments) Gauge(name string) client.MetricsGauge {
	return gauge{instrument(m, name, func(o prometheus.Opts) prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts(o)) })}
}

// Timer implements client.MetricsHandler.
func (m *instruments) Timer(name string) client.MetricsTimer {
	return timer{instrument(m, name+"_seconds", func(o prometheus.Opts) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: o.Name, Help: o.Help, ConstLabels: o.ConstLabels, Buckets: sdkBuckets})
	})}
}

type (
	counter struct{ prometheus.Counter }
	gauge   struct{ prometheus.Gauge }
	timer   struct{ prometheus.Histogram }
)

func (c counter) Inc(n int64)          { c.Add(float64(n)) }
func (g gauge) Update(to float64)      { g.Set(to) }
func (t timer) Record(d time.Duration) { t.Observe(d.Seconds()) }

// instrument is the series of a name with the tags of m.
func instrument[T prometheus.Collector](m *instruments, name string, create func(prometheus.Opts) T) T {
	key := name
	for _, tag := range slices.Sorted(maps.Keys(m.tags)) {
		key += "\x00" + tag + "\x00" + m.tags[tag]
	}
	m.series.mu.Lock()
	defer m.series.mu.Unlock()
	found, ok := m.series.all[key].(T)
	if !ok {
		found = create(prometheus.Opts{Name: name, Help: "Of the Temporal SDK.", ConstLabels: m.tags})
		m.series.all[key] = found
	}
	return found
}

// Describe implements prometheus.Collector: the series are not known in advance.
func (m *instruments) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *instruments) Collect(to chan<- prometheus.Metric) {
	m.series.mu.Lock()
	all := slices.Collect(maps.Values(m.series.all))
	m.series.mu.Unlock()
	for _, each := range all {
		each.Collect(to)
	}
}
