package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
)

// Way is how a workload was run.
type Way string

const (
	// Bare is plain interpreters that call the function in a loop, without gpumux.
	Bare Way = "bare"
	// Persistent is slots whose processes stay.
	Persistent Way = "persistent"
	// Fresh is slots with a new process per item.
	Fresh Way = "fresh"
	// Sequential is one persistent slot, which runs one item after the other.
	Sequential Way = "sequential"
	// OnCPU is persistent slots on the CPU of a machine whose other ways use its GPU.
	OnCPU Way = "cpu"
)

// Report is all that Run measured. Times in JSON are in seconds.
type Report struct {
	Version string  `json:"version"`
	Machine Machine `json:"machine"`
	// Quick says that pieces and limits were short.
	Quick bool          `json:"quick,omitempty"`
	Took  time.Duration `json:"-"`
	Rows  []Row         `json:"rows,omitempty"`
	// Unmeasured are the ways to share the device that this machine does not allow.
	Unmeasured []Unmeasured `json:"unmeasured,omitempty"`
	// Comparison is set when trivial items were compared with other tools instead.
	Comparison *Comparison `json:"comparison,omitempty"`
	Advice     []string    `json:"advice,omitempty"`
	// Notes say where the run differs from what was asked for or from larger machines, and what it could not tell.
	Notes []string `json:"notes,omitempty"`
}

// Unmeasured is a way to share a device, and why it was not measured.
type Unmeasured struct {
	Sharing string `json:"sharing"`
	Reason  string `json:"reason"`
}

// Machine is where the report comes from.
type Machine struct {
	OS   string `json:"os"`
	CPUs int    `json:"cpus"`
	// Device is the device of all ways but OnCPU.
	Device string `json:"device"`
	GPU    bool   `json:"gpu"`
	Python string `json:"python"`
	// Framework multiplies the matrices: torch, jax, cupy or numpy with its version.
	Framework string `json:"framework,omitempty"`
}

// Row is one workload run in one way.
type Row struct {
	Workload string `json:"workload"`
	// Size is the rows and columns of the matrices; 0 for workloads that multiply none of one size.
	Size int `json:"size,omitempty"`
	Way  Way `json:"way"`
	// Sharing is default, mps or mig; nothing for bare processes.
	Sharing string `json:"sharing,omitempty"`
	// Clients is the number of slots, or of bare processes.
	Clients int `json:"clients"`
	// Items is how many were measured.
	Items int `json:"items"`
	// Start is the time until every process has run its first item, from nothing.
	Start float64 `json:"startSeconds"`
	// Rate is the throughput of the steady state.
	Rate Spread `json:"itemsPerSecond"`
	// Unshared is the rate of one bare process alone, in turns with this row's way.
	Unshared Spread `json:"unsharedPerSecond,omitzero"`
	// OfUnshared is Rate as a share of Unshared round by round, OfBare of that of as many bare processes.
	OfUnshared Spread `json:"ofUnshared,omitzero"`
	OfBare     Spread `json:"ofBare,omitzero"`
	// Item is what an item takes in its slot, Latency the median of that as a share of one bare process alone.
	Item    Quartiles `json:"itemSeconds"`
	Latency Spread    `json:"latencyOfUnshared,omitzero"`
	// PerMap is what a map takes beside its items.
	PerMap Spread `json:"perMapSeconds,omitzero"`
	// Faults counts items that failed, by kind.
	Faults map[gpumux.Kind]int64 `json:"faults,omitempty"`
}

// Quartiles of the times of items.
type Quartiles struct {
	Min    float64 `json:"min"`
	Q1     float64 `json:"q1"`
	Median float64 `json:"median"`
	Q3     float64 `json:"q3"`
	P99    float64 `json:"p99"`
}

// Comparison is trivial items through gpumux and through other tools, in the same run.
type Comparison struct {
	Items int `json:"items"`
	Slots int `json:"slots"`
	// Activities is how many items were one activity each, and one task each in Dask.
	Activities int `json:"activities"`
	// Rounds are the tools' items per second, round by round.
	Rounds []ComparisonRound `json:"rounds"`
}

// ComparisonRound is items per second of each tool.
type ComparisonRound struct {
	Gpumux float64 `json:"gpumux"`
	// PoolOne and PoolDefault are multiprocessing.Pool.map with a chunk size of 1 and with its own choice.
	PoolOne     float64 `json:"poolOne"`
	PoolDefault float64 `json:"poolDefault"`
	// Dask is its distributed scheduler with one task per item; 0 where it is not installed.
	Dask float64 `json:"dask,omitempty"`
	// Activity is plain Temporal: a workflow with one activity per item, in Go and doing nothing.
	Activity float64 `json:"activity"`
}

// failed is the number of items that failed.
func (r Row) failed() int64 {
	var n int64
	for _, count := range r.Faults {
		n += count
	}
	return n
}

// fill computes the figures of a row that need no other.
func (r *Row) fill(samples []sample) {
	var rates, maps []float64
	var times []time.Duration
	for _, one := range samples {
		times = append(times, one.times...)
		if one.rate > 0 {
			rates = append(rates, one.rate)
		}
		if one.perMap > 0 {
			maps = append(maps, one.perMap.Seconds())
		}
	}
	slices.Sort(times)
	at := func(p float64) float64 { return quantile(times, p).Seconds() }
	r.Items, r.Rate, r.PerMap = len(times), spread(rates), spread(maps)
	r.Item = Quartiles{Min: at(0), Q1: at(0.25), Median: at(0.5), Q3: at(0.75), P99: at(0.99)}
}

// measured reports whether a row is of a workload that is measured over and over.
func (r Row) measured() bool { return r.Workload != "oom" }

// row is the row of a workload run in one way with the default sharing, or nil; of several the one with most clients.
func (r *Report) row(name string, way Way) (found *Row) {
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Workload == name && row.Way == way && (row.Sharing == timeSliced || way == Bare) {
			found = row
		}
	}
	return found
}

// doubt notes what the machine was too unsteady to tell.
func (r *Report) doubt() {
	for _, name := range Workloads {
		var parts []string
		for _, row := range r.Rows {
			if row.Workload == name && row.measured() && row.Way != Bare && row.Way != Fresh && !row.OfUnshared.narrow() {
				within := "±" + percent(row.OfUnshared.within())
				if !row.OfUnshared.known() {
					within = "an unknown part"
				}
				parts = append(parts, fmt.Sprintf("%s for %s in %s", within, row.name(), plural(row.OfUnshared.Count, "round")))
			}
		}
		if len(parts) > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: throughput is not known to ±3%% of itself, but to %s; measure again while nothing else runs here, or longer with --limit",
				name, strings.Join(parts, ", ")))
		}
	}
}
