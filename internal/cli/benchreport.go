package cli

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"

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
	Version string        `json:"version"`
	Machine machine       `json:"machine"`
	Took    time.Duration `json:"-"`
	Rows    []benchRow    `json:"rows,omitempty"`
	// Unmeasured are the ways to share the device that this machine does not allow.
	Unmeasured []unmeasured `json:"unmeasured,omitempty"`
	Advice     []string     `json:"advice,omitempty"`
	// Notes say where the run differs from what was asked for or from larger machines.
	Notes []string `json:"notes,omitempty"`
}

type unmeasured struct {
	Sharing string `json:"sharing"`
	Reason  string `json:"reason"`
}

type machine struct {
	OS        string `json:"os"`
	CPUs      int    `json:"cpus"`
	Device    string `json:"device"`
	GPU       bool   `json:"gpu"`
	Python    string `json:"python"`
	Framework string `json:"framework,omitempty"` // with its version
}

// String is the machine for people.
func (m machine) String() string {
	text := fmt.Sprintf("%s (%s, %s), Python %s", m.Device, m.OS, english.Plural(m.CPUs, "processor", ""), m.Python)
	if m.Framework != "" {
		text += ", " + m.Framework
	}
	return text
}

type benchRow struct {
	Workload string `json:"workload"`
	Size     int    `json:"size,omitempty"` // rows and columns of the matrices
	Way      way    `json:"way"`
	Sharing  string `json:"sharing,omitempty"` // default, mps or mig; of slots
	Clients  int    `json:"clients"`           // slots, or bare processes
	Items    int    `json:"items"`             // that were measured
	// Rate is the throughput of the steady state. OfUnshared divides it, in each round, by
	// that of one bare process alone, and OfBare by that of as many bare processes.
	Rate       quartiles `json:"itemsPerSecond"`
	OfUnshared quartiles `json:"ofUnshared,omitzero"`
	OfBare     quartiles `json:"ofBare,omitzero"`
	// Item is an item's time in its slot. Latency divides a round's median of it by that of
	// one bare process alone.
	Item    quartiles `json:"itemSeconds"`
	Latency quartiles `json:"latencyOfUnshared,omitzero"`
}

// label is the workload for people: "heavy 2048×2048".
func (r benchRow) label() string {
	if r.Size == 0 {
		return r.Workload
	}
	return fmt.Sprintf("%s %d×%d", r.Workload, r.Size, r.Size)
}

// Name is "heavy 2048×2048, persistent mps 4".
func (r benchRow) Name() string {
	return fmt.Sprint(r.label(), ", ", strings.TrimSpace(string(r.Way)+" "+r.Sharing), " ", r.Clients)
}

// Figure is the throughput for people.
func (r benchRow) Figure() string { return figure(r.Rate.Median) }

// advise says how many slots of which sharing do most of a workload, and what gpumux
// costs an item of light.
func (r *benchReport) advise(workload string) {
	const worthwhile = 1.05 // the factor by which more slots must raise the throughput
	var alone, one, best benchRow
	for _, row := range r.Rows {
		switch {
		case row.Workload != workload || row.Way == wayFresh:
		case row.Way == wayBare && row.Clients == 1:
			alone = row
		case row.Way == wayBare:
		case one.Way == "":
			one, best = row, row
		case row.OfUnshared.Median > worthwhile*best.OfUnshared.Median:
			best = row
		}
	}
	text := fmt.Sprintf("1 slot; it does %s of the unshared device, and more slots no more, as far as the rounds can tell", one.OfUnshared.share())
	if best.OfUnshared.above(one.OfUnshared) {
		text = fmt.Sprintf("for throughput %d slots of %s, which do %s of the unshared device where 1 slot does %s; "+
			"for latency 1 slot: an item takes %s of its time alone, and %s with %d", best.Clients, best.Sharing, best.OfUnshared.share(),
			one.OfUnshared.share(), percent(one.Latency.Median), percent(best.Latency.Median), best.Clients)
	}
	r.Advice = append(r.Advice, one.label()+": "+text)
	if workload == "light" && alone.Rate.above(one.Rate) {
		const small = 0.05
		cost := 1/one.Rate.Median - 1/alone.Rate.Median
		r.Advice = append(r.Advice, fmt.Sprintf("gpumux takes %s per item; items shorter than %s lose more than %.0f%% to it, so put several into one item",
			seconds(cost), seconds(cost/small), small*100))
	}
}

func (r *benchReport) print(to io.Writer) error {
	fmt.Fprintln(to, r.Machine)
	for _, each := range r.Unmeasured {
		fmt.Fprintf(to, "not measured: sharing %s: %s\n", each.Sharing, each.Reason)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(to, "note: "+note)
	}
	fmt.Fprintln(to)
	if err := report.Table(to, r.Table()); err != nil {
		return err
	}
	fmt.Fprintln(to, "\n"+r.Legend())
	if len(r.Advice) > 0 {
		fmt.Fprintln(to, "\n- "+strings.Join(r.Advice, "\n- "))
	}
	_, err := fmt.Fprintf(to, "\nmeasured in %s\n", r.Took.Round(time.Second/10))
	return err
}

// Table is a row of cells per workload and way; the first is the header.
func (r *benchReport) Table() [][]string {
	rows := [][]string{{"WORKLOAD", "WAY", "SHARING", "CLIENTS", "ROUNDS", "ITEMS/S", "THROUGHPUT", "Q1-Q3", "LATENCY", "ITEM", "Q1-Q3", "OF BARE"}}
	for _, row := range r.Rows {
		cells := []string{row.label(), string(row.Way), row.Sharing, strconv.Itoa(row.Clients), strconv.Itoa(row.OfUnshared.Count)}
		if row.OfUnshared.Count == 0 {
			cells = append(cells, "unknown: the slots hardly ever worked at the same time")
		} else {
			cells = append(cells, row.Figure(), percent(row.OfUnshared.Median), row.OfUnshared.between(percent),
				percent(row.Latency.Median), seconds(row.Item.Median), row.Item.between(seconds))
			if row.OfBare.Count > 0 {
				cells = append(cells, percent(row.OfBare.Median))
			}
		}
		rows = append(rows, cells)
	}
	return rows
}

// Legend explains the table.
func (r *benchReport) Legend() string {
	return "THROUGHPUT and LATENCY are shares of one bare process alone, the unshared device, in the same round; OF BARE is of as many bare\n" +
		"processes. Q1-Q3 are quartiles: of the rounds, and of single items."
}

//go:embed bench/page.html
var benchPageText string

// html writes the report as one page that needs nothing from the network: tables, and
// charts as SVG. A bar is a share of the most that its workload came to.
func (r *benchReport) html(to io.Writer) error {
	longest := map[string]float64{}
	for _, row := range r.Rows {
		longest[row.Workload] = max(longest[row.Workload], row.Rate.Q3)
	}
	functions := template.FuncMap{"bar": func(row benchRow, value float64) string { return fmt.Sprintf("%.2f", 100*value/longest[row.Workload]) },
		"minus": func(a, b float64) float64 { return a - b }}
	page, err := template.New("page").Funcs(functions).Parse(benchPageText)
	if err == nil {
		err = page.Execute(to, r)
	}
	return err
}

func (q quartiles) share() string {
	return fmt.Sprintf("%s (%s)", percent(q.Median), q.between(percent))
}

// between is "91%-95%".
func (q quartiles) between(word func(float64) string) string { return word(q.Q1) + "-" + word(q.Q3) }

// figure writes a number with three digits: 0.93, 35.6, 18.3k, 2.55M.
func figure(value float64) string { return digits(value, "") }

// seconds writes a time with three digits: 18.3µs, 250ms, 83.2s.
func seconds(s float64) string { return digits(s, "s") }

// percent writes a share: 0.68%, 93%, and 38.7k× where that is easier to read.
func percent(share float64) string {
	if share >= 10 {
		return figure(share) + "×"
	}
	return figure(100*share) + "%"
}

// digits writes a value with three digits and a prefix of its unit; a number without a
// unit takes no prefix below 1.
func digits(value float64, unit string) string {
	value, _ = strconv.ParseFloat(strconv.FormatFloat(value, 'g', 3, 64), 64)
	if unit == "" && value < 1000 {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return strings.ReplaceAll(humanize.SIWithDigits(value, 2, unit), " ", "")
}
