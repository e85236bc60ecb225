package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux/internal/report"
)

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
