package bench

import (
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
	// Sequential is one persistent slot.
	Sequential Way = "sequential"
	// OnCPU is a persistent pool on the CPU of a machine whose other ways use its GPU.
	OnCPU Way = "cpu"
)

// Report is all that Run measured. Times in JSON are in seconds.
type Report struct {
	Version string  `json:"version"`
	Machine Machine `json:"machine"`
	// Slots is the number of slots and of bare processes that stood side by side.
	Slots int `json:"slots"`
	// Quick says that every figure comes from a short run.
	Quick bool          `json:"quick,omitempty"`
	Took  time.Duration `json:"-"`
	Rows  []Row         `json:"rows,omitempty"`
	// Sweep is the medium workload over numbers of slots, the smallest first.
	Sweep []Step `json:"sweep,omitempty"`
	// Comparison is set when trivial items were compared with other tools instead.
	Comparison *Comparison `json:"comparison,omitempty"`
	Advice     []string    `json:"advice,omitempty"`
	// Notes say where the run differs from what was asked for or from larger machines.
	Notes []string `json:"notes,omitempty"`
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
	Size  int `json:"size,omitempty"`
	Way   Way `json:"way"`
	Slots int `json:"slots"`
	Items int `json:"items"`
	// Start is the time until every process has run its first item, from nothing.
	Start float64 `json:"startSeconds"`
	// Min, Mean, Median and P99 are of one item.
	Min    float64 `json:"minSeconds"`
	Mean   float64 `json:"meanSeconds"`
	Median float64 `json:"medianSeconds"`
	P99    float64 `json:"p99Seconds"`
	// Total is the whole run, with all processes warm: of a map from its submission to its merged results.
	Total float64 `json:"totalSeconds"`
	Rate  float64 `json:"itemsPerSecond"`
	// OfBare is Rate as a share of that of bare processes: one for Sequential, else as many as there are slots. 0 where they do
	// not compare: bare processes have no budget that an oom item could pass.
	OfBare float64 `json:"ofBare"`
	// Faults counts items that failed, by kind.
	Faults map[gpumux.Kind]int64 `json:"faults,omitempty"`

	times []time.Duration // of the items, sorted
}

// Step is the throughput of one number of slots.
type Step struct {
	Slots int     `json:"slots"`
	Rate  float64 `json:"itemsPerSecond"`
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

// fill computes the figures of a row from the times of its items and its total.
func (r *Row) fill(times []time.Duration, total time.Duration) {
	r.times = times
	r.Min = percentile(times, 0).Seconds()
	r.Mean = mean(times).Seconds()
	r.Median = percentile(times, 0.5).Seconds()
	r.P99 = percentile(times, 0.99).Seconds()
	r.Total = total.Seconds()
	if total > 0 {
		r.Rate = float64(r.Items) / total.Seconds()
	}
}

// row is the row of a workload run in one way, or nil. Slots 0 means any number.
func (r *Report) row(name string, way Way, slots int) *Row {
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Workload == name && row.Way == way && (slots == 0 || row.Slots == slots) {
			return row
		}
	}
	return nil
}

// compareWithBare sets OfBare of every row.
func (r *Report) compareWithBare() {
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Workload == "oom" {
			continue
		}
		slots := r.Slots
		if row.Way == Sequential || row.Way == Bare {
			slots = row.Slots
		}
		if alone := r.row(row.Workload, Bare, slots); alone != nil && alone.Rate > 0 {
			row.OfBare = row.Rate / alone.Rate
		}
	}
}
