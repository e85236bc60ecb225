package metrics

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// instruments take the Temporal SDK's metrics and hand them to Prometheus, under the SDK's names; timers are histograms in seconds.
// The SDK tags one name differently in different places, so that a series is a name with its tags, made when it is first used.
type instruments struct {
	tags   map[string]string
	series *series
}

type series struct {
	mu  sync.Mutex
	all map[string]*measured
}

// measured is one series. Of a counter or gauge it holds a float's bits; of a timer counts by bucket, and the sum in seconds.
type measured struct {
	desc    *prometheus.Desc
	labels  []string
	kind    prometheus.ValueType // 0: a histogram
	value   atomic.Uint64
	buckets []atomic.Uint64
}

// buckets are the upper bounds of timers, in seconds; polls last up to a minute.
var buckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600}

func newInstruments() *instruments { return &instruments{series: &series{all: map[string]*measured{}}} }

// WithTags implements client.MetricsHandler.
func (m *instruments) WithTags(tags map[string]string) client.MetricsHandler {
	all := maps.Clone(m.tags)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, tags)
	return &instruments{all, m.series}
}

// Counter implements client.MetricsHandler.
func (m *instruments) Counter(name string) client.MetricsCounter {
	return addition{m.find(name, prometheus.CounterValue)}
}

// Gauge implements client.MetricsHandler.
func (m *instruments) Gauge(name string) client.MetricsGauge {
	return setting{m.find(name, prometheus.GaugeValue)}
}

// Timer implements client.MetricsHandler.
func (m *instruments) Timer(name string) client.MetricsTimer { return duration{m.find(name, 0)} }

type (
	addition struct{ *measured }
	setting  struct{ *measured }
	duration struct{ *measured }
)

func (a addition) Inc(n int64)      { a.add(float64(n)) }
func (s setting) Update(to float64) { s.value.Store(math.Float64bits(to)) }
func (d duration) Record(t time.Duration) {
	at, _ := slices.BinarySearch(buckets, t.Seconds())
	d.buckets[at].Add(1)
	d.add(t.Seconds())
}

func (m *measured) add(n float64) {
	for {
		before := m.value.Load()
		if m.value.CompareAndSwap(before, math.Float64bits(math.Float64frombits(before)+n)) {
			return
		}
	}
}

func (m *instruments) find(name string, kind prometheus.ValueType) *measured {
	names := slices.Sorted(maps.Keys(m.tags))
	labels := make([]string, len(names))
	key := name
	for i, each := range names {
		labels[i] = m.tags[each]
		key += "\x00" + each + "\x00" + labels[i]
	}
	s := m.series
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.all[key]
	if found == nil {
		if kind == prometheus.CounterValue {
			name = strings.TrimSuffix(name, "_total") + "_total"
		} else if kind == 0 {
			name += "_seconds"
		}
		found = &measured{
			desc: prometheus.NewDesc(name, "Of the Temporal SDK.", names, nil), labels: labels, kind: kind,
			buckets: make([]atomic.Uint64, len(buckets)+1),
		}
		s.all[key] = found
	}
	return found
}

// Describe implements prometheus.Collector: which series there are is not known before.
func (m *instruments) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *instruments) Collect(to chan<- prometheus.Metric) {
	m.series.mu.Lock()
	all := slices.Collect(maps.Values(m.series.all))
	m.series.mu.Unlock()
	for _, each := range all {
		value := math.Float64frombits(each.value.Load())
		if each.kind != 0 {
			to <- prometheus.MustNewConstMetric(each.desc, each.kind, value, each.labels...)
			continue
		}
		upTo, count := map[float64]uint64{}, uint64(0)
		for i := range each.buckets {
			count += each.buckets[i].Load()
			if i < len(buckets) {
				upTo[buckets[i]] = count
			}
		}
		to <- prometheus.MustNewConstHistogram(each.desc, count, value, upTo, each.labels...)
	}
}
