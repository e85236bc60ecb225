package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux/internal/report"
)

const (
	rounds = 9 // of a stage, where its limit allows
	// minItems of a client give a piece a steady state.
	minItems = 4
)

// lane is one way that takes turns: the throughput of each round, and the times of all
// its items.
type lane struct {
	clients, maxItems int // at most so many items per client
	items             int // of the next piece, per client
	rates, times      []float64
	run               func(ctx context.Context, items int) (ends [][]int64, err error)
}

// takeTurns warms two lanes up and runs the rounds, as many as the limit allows, and goes
// on beyond it until one round has measured both: only such a round has shares.
func takeTurns(ctx context.Context, lanes []*lane, limit time.Duration) error {
	until := time.Now().Add(limit)
	length := min(max(limit/20, 100*time.Millisecond), 500*time.Millisecond)
	for _, l := range lanes {
		l.items = minItems
		for before := 0; l.items >= 2*before && (before == 0 || time.Now().Before(until)); {
			before = l.items
			if err := l.turn(ctx, length); err != nil {
				return err
			}
		}
		l.rates, l.times = nil, nil
	}
	for round := 0; round < rounds && (time.Now().Before(until) || lanes[0].share(lanes[1]).Count == 0); round++ {
		for _, l := range lanes {
			if err := l.turn(ctx, length); err != nil {
				return err
			}
		}
		slices.Reverse(lanes)
	}
	return nil
}

// turn runs a piece and sizes the next one by it.
func (l *lane) turn(ctx context.Context, length time.Duration) error {
	began := time.Now()
	ends, err := l.run(ctx, l.items)
	if err != nil {
		return err
	}
	rate := rateOf(ends, l.clients)
	l.rates = append(l.rates, rate)
	for _, slot := range ends {
		for i := 1; i < len(slot); i++ {
			l.times = append(l.times, float64(slot[i]-slot[i-1])/1e9)
		}
	}
	items := rate / float64(l.clients) * length.Seconds()
	if rate == 0 {
		// The slots hardly worked at the same time. A longer piece helps, up to four
		// times its length.
		items = float64(l.items) * min(8, max(1, 4*length.Seconds()/time.Since(began).Seconds()))
	}
	l.items = min(max(int(items), minItems), l.maxItems)
	return nil
}

// share compares the throughput with another lane's, round by round.
func (l *lane) share(base *lane) quartiles {
	var shares []float64
	for i, rate := range l.rates {
		if by := base.rates[i]; by > 0 {
			shares = append(shares, rate/by)
		}
	}
	return quartilesOf(shares)
}

// rateOf is items per second while all slots work, by when each slot ended its items, in
// nanoseconds since 1970; 0 where they hardly worked at the same time. It sorts ends.
func rateOf(ends [][]int64, slots int) (rate float64) {
	began, ended := int64(0), int64(math.MaxInt64) // while all slots work
	earliest, latest := ended, began
	for _, slot := range ends {
		slices.Sort(slot)
		first, last := slot[0], slot[len(slot)-1]
		began, ended = max(began, first), min(ended, last)
		earliest, latest = min(earliest, first), max(latest, last)
	}
	if len(ends) < slots || ended <= began || 3*(ended-began) < latest-earliest {
		return 0
	}
	for _, slot := range ends {
		rate += (finished(slot, ended) - finished(slot, began)) / time.Duration(ended-began).Seconds()
	}
	return rate
}

// finished is the number of items that a slot had finished at a time, with the part of
// the one that ran then.
func finished(ends []int64, at int64) float64 {
	i, found := slices.BinarySearch(ends, at)
	if found || i == 0 || i == len(ends) {
		return float64(i)
	}
	return float64(i-1) + float64(at-ends[i-1])/float64(ends[i]-ends[i-1])
}

// quartiles of repeated measurements.
type quartiles struct {
	Q1     float64 `json:"q1"`
	Median float64 `json:"median"`
	Q3     float64 `json:"q3"`
	// Count is the number of measurements.
	Count int `json:"count"`
}

func quartilesOf(values []float64) quartiles {
	values = slices.DeleteFunc(slices.Sorted(slices.Values(values)), func(value float64) bool { return value == 0 })
	n := len(values)
	if n == 0 {
		return quartiles{}
	}
	return quartiles{values[(n-1)/4], values[n/2], values[n-1-(n-1)/4], n}
}

// The ways: interpreters that call the function in a loop, without gpumux, slots whose
// processes stay, and slots with a new process per item.
const wayBare, wayPersistent, wayFresh = "bare", "persistent", "fresh"

// benchReport is all that was measured. Times in JSON are in seconds.
type benchReport struct {
	Version string     `json:"version"`
	Machine machine    `json:"machine"`
	Rows    []benchRow `json:"rows,omitempty"`
	// Notes say where the run differs from what was asked for or from larger machines.
	Notes []string `json:"notes,omitempty"`
}

type machine struct {
	OS        string `json:"os"`
	CPUs      int    `json:"cpus"`
	Device    string `json:"device"`
	GPU       bool   `json:"gpu"`
	Python    string `json:"python"`
	Framework string `json:"framework,omitempty"` // with its version
}

type benchRow struct {
	benchStage
	Size int `json:"size,omitempty"` // rows and columns of the matrices
	// Rate is the throughput of the steady state. OfBare divides it, in each round, by that
	// of as many bare processes. Item is an item's time in its slot.
	Rate   quartiles `json:"itemsPerSecond"`
	OfBare quartiles `json:"ofBare,omitzero"`
	Item   quartiles `json:"itemSeconds"`
}

func (r *benchReport) print(to io.Writer) error {
	m := r.Machine
	fmt.Fprintf(to, "%s (%s, CPUs: %d), Python %s %s\n", m.Device, m.OS, m.CPUs, m.Python, m.Framework)
	for _, note := range r.Notes {
		fmt.Fprintln(to, "note: "+note)
	}
	fmt.Fprintln(to)
	rows := [][]string{{"WORKLOAD", "SIZE", "WAY", "SHARING", "CLIENTS", "ROUNDS", "ITEM", "ITEMS/S", "OF BARE", "Q1-Q3"}}
	for _, row := range r.Rows {
		size := strings.TrimPrefix(strconv.Itoa(row.Size), "0")
		cells := []string{row.Workload, size, row.Way, row.Sharing, strconv.Itoa(row.Clients), strconv.Itoa(row.Rate.Count),
			humanize.SIWithDigits(row.Item.Median, 1, "s"), strings.TrimSpace(humanize.SIWithDigits(row.Rate.Median, 1, ""))}
		if row.Rate.Count == 0 {
			cells[7] = "unknown: the slots hardly ever worked at the same time"
		} else if s := row.OfBare; s.Count > 0 {
			cells = append(cells, fmt.Sprintf("%.1f%%", 100*s.Median), fmt.Sprintf("%.1f%%-%.1f%%", 100*s.Q1, 100*s.Q3))
		}
		rows = append(rows, cells)
	}
	return report.Table(to, rows)
}
