package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/gpumux/gpumux/internal/report"
)

type way string

const (
	wayBare       way = "bare"       // interpreters that call the function in a loop, without gpumux
	wayPersistent way = "persistent" // slots whose processes stay
	wayFresh      way = "fresh"      // slots with a new process per item
)

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
	Workload string `json:"workload"`
	Size     int    `json:"size,omitempty"` // rows and columns of the matrices
	Way      way    `json:"way"`
	Sharing  string `json:"sharing,omitempty"` // default or mps; of slots
	Clients  int    `json:"clients"`           // slots, or bare processes
	Items    int    `json:"items"`             // that were measured
	// Rate is the throughput of the steady state. OfBare divides it, in each round, by that
	// of as many bare processes.
	Rate   quartiles `json:"itemsPerSecond"`
	OfBare quartiles `json:"ofBare,omitzero"`
	// Item is an item's time in its slot.
	Item quartiles `json:"itemSeconds"`
}

// label is the workload for people: "heavy 2048×2048".
func (r benchRow) label() string {
	if r.Size == 0 {
		return r.Workload
	}
	return fmt.Sprintf("%s %d×%d", r.Workload, r.Size, r.Size)
}

func (r *benchReport) print(to io.Writer) error {
	m := r.Machine
	fmt.Fprintf(to, "%s (%s, %s), Python %s %s\n", m.Device, m.OS, english.Plural(m.CPUs, "processor", ""), m.Python, m.Framework)
	for _, note := range r.Notes {
		fmt.Fprintln(to, "note: "+note)
	}
	fmt.Fprintln(to)
	rows := [][]string{{"WORKLOAD", "WAY", "SHARING", "CLIENTS", "ROUNDS", "ITEMS/S", "Q1-Q3", "ITEM", "Q1-Q3", "OF BARE", "Q1-Q3"}}
	for _, row := range r.Rows {
		cells := []string{row.label(), string(row.Way), row.Sharing, strconv.Itoa(row.Clients), strconv.Itoa(row.Rate.Count)}
		if row.Rate.Count == 0 {
			cells = append(cells, "unknown: the slots hardly ever worked at the same time")
		} else {
			cells = append(cells, row.Rate.cells(figure)...)
			cells = append(cells, row.Item.cells(seconds)...)
			if row.OfBare.Count > 0 {
				cells = append(cells, row.OfBare.cells(percent)...)
			}
		}
		rows = append(rows, cells)
	}
	if err := report.Table(to, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(to, "\nOF BARE is the share of as many bare processes in the same round. Q1-Q3 are quartiles of the rounds; those of ITEM of all items.")
	return err
}

// cells are the median and "91%-95%".
func (q quartiles) cells(word func(float64) string) []string {
	return []string{word(q.Median), word(q.Q1) + "-" + word(q.Q3)}
}

func figure(value float64) string {
	if value < 1000 {
		return strconv.FormatFloat(value, 'g', 3, 64)
	}
	return humanize.SIWithDigits(value, 1, "")
}

func seconds(s float64) string { return humanize.SIWithDigits(s, 1, "s") }

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
