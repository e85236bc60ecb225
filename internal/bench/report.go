package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/gpumux/gpumux"
)

// Way is how a workload was run.
type Way string

const (
	Bare       Way = "bare"       // interpreters that call the function in a loop, without gpumux
	Persistent Way = "persistent" // slots whose processes stay
	Fresh      Way = "fresh"      // slots with a new process per item
	Sequential Way = "sequential" // one persistent slot
	OnCPU      Way = "cpu"        // slots on the CPU of a machine whose other ways use its GPU
)

// Report is all that Run measured. Times in JSON are in seconds.
type Report struct {
	Version string  `json:"version"`
	Machine Machine `json:"machine"`
	// Quick says that pieces were short and rounds few.
	Quick bool          `json:"quick,omitempty"`
	Took  time.Duration `json:"-"`
	Rows  []Row         `json:"rows,omitempty"`
	// Unmeasured are the ways to share the device that this machine does not allow.
	Unmeasured []Unmeasured `json:"unmeasured,omitempty"`
	Advice     []string     `json:"advice,omitempty"`
	// Notes say where the run differs from what was asked for or from larger machines.
	Notes []string `json:"notes,omitempty"`
}

// Unmeasured is a way to share a device, and why it was not measured.
type Unmeasured struct {
	Sharing string `json:"sharing"`
	Reason  string `json:"reason"`
}

// Machine is where the report comes from.
type Machine struct {
	OS        string `json:"os"`
	CPUs      int    `json:"cpus"`
	Device    string `json:"device"` // of all ways but OnCPU
	GPU       bool   `json:"gpu"`
	Python    string `json:"python"`
	Framework string `json:"framework,omitempty"` // with its version
}

// Row is one workload run in one way.
type Row struct {
	Workload string `json:"workload"`
	Size     int    `json:"size,omitempty"` // rows and columns of the matrices
	Way      Way    `json:"way"`
	Sharing  string `json:"sharing,omitempty"` // default, mps or mig; of slots
	Clients  int    `json:"clients"`           // slots, or bare processes
	Items    int    `json:"items"`             // that were measured
	// Rate is the throughput of the steady state. OfUnshared divides it, in each round, by
	// that of one bare process alone, and OfBare by that of as many bare processes.
	Rate       Quartiles `json:"itemsPerSecond"`
	OfUnshared Quartiles `json:"ofUnshared,omitzero"`
	OfBare     Quartiles `json:"ofBare,omitzero"`
	// Item is an item's time in its slot. Latency divides a round's median of it by that of
	// one bare process alone. PerMap is the time that a map takes beside its items.
	Item    Quartiles                  `json:"itemSeconds"`
	Latency Quartiles                  `json:"latencyOfUnshared,omitzero"`
	PerMap  Quartiles                  `json:"perMapSeconds,omitzero"`
	Faults  map[gpumux.FaultKind]int64 `json:"faults,omitempty"` // items that failed
}

const legend = "THROUGHPUT and LATENCY are shares of one bare process alone, the unshared device, in the same round; OF BARE is of as many bare\n" +
	"processes. Q1-Q3 are quartiles: of the rounds, and of single items. PER MAP is what a map takes beside its items."

// label is the workload for people: "heavy 2048×2048".
func (r Row) label() string {
	if r.Size == 0 {
		return r.Workload
	}
	return fmt.Sprintf("%s %d×%d", r.Workload, r.Size, r.Size)
}

// Print writes the report for people.
func (r *Report) Print(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Machine)
	for _, one := range r.Unmeasured {
		fmt.Fprintf(&b, "not measured: sharing %s: %s\n", one.Sharing, one.Reason)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(&b, "note: "+note)
	}
	fmt.Fprintln(&b)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range r.Table() {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&b, "\n"+legend)
	if len(r.Advice) > 0 {
		fmt.Fprintln(&b, "\n- "+strings.Join(r.Advice, "\n- "))
	}
	_, err := fmt.Fprintf(to, "%s\nmeasured in %s\n", &b, r.Took.Round(time.Second/10))
	return err
}

// String is the machine for people.
func (m Machine) String() string {
	text := fmt.Sprintf("%s (%s, %s), Python %s", m.Device, m.OS, english.Plural(m.CPUs, "processor", ""), m.Python)
	if m.Framework != "" {
		text += ", " + m.Framework
	}
	return text
}

// Table is a row of cells per workload and way; the first is the header.
func (r *Report) Table() [][]string {
	rows := [][]string{{"WORKLOAD", "WAY", "SHARING", "CLIENTS", "ROUNDS", "ITEMS/S", "THROUGHPUT", "Q1-Q3", "LATENCY", "ITEM", "Q1-Q3",
		"OF BARE", "PER MAP"}}
	for i, row := range r.Rows {
		name := row.label()
		if i > 0 && r.Rows[i-1].Workload == row.Workload {
			name = ""
		}
		cells := []string{name, string(row.Way), row.Sharing, strconv.Itoa(row.Clients)}
		switch {
		case !row.measured():
			cells = append(cells, outcomeText(row))
		case row.OfUnshared.Count == 0:
			cells = append(cells, "unknown: the slots hardly ever worked at the same time")
		default:
			cells = append(cells, strconv.Itoa(row.OfUnshared.Count), figure(row.Rate.Median),
				percent(row.OfUnshared.Median), row.OfUnshared.between(percent), percent(row.Latency.Median),
				seconds(row.Item.Median), row.Item.between(seconds), row.OfBare.text(percent), row.PerMap.text(seconds))
		}
		rows = append(rows, cells)
	}
	return rows
}

func (r Row) measured() bool { return r.Workload != "oom" }

// name is "persistent mps 4".
func (r Row) name() string {
	way := strings.TrimSuffix(fmt.Sprintf("%s %s", r.Way, r.Sharing), " "+timeSliced)
	return fmt.Sprintf("%s %d", strings.TrimSpace(way), r.Clients)
}

// outcomeText is "2 budget, 1 crash, the other 12 finished".
func outcomeText(row Row) string {
	if len(row.Faults) == 0 {
		return "all finished"
	}
	text, finished := "", int64(row.Items)
	for _, kind := range slices.Sorted(maps.Keys(row.Faults)) {
		text += fmt.Sprintf("%d %s, ", row.Faults[kind], kind)
		finished -= row.Faults[kind]
	}
	return fmt.Sprintf("%sthe other %d finished", text, finished)
}

// text is the median, or - where nothing was measured.
func (q Quartiles) text(word func(float64) string) string {
	if q.Count == 0 {
		return "-"
	}
	return word(q.Median)
}

// between is "91%-95%".
func (q Quartiles) between(word func(float64) string) string { return word(q.Q1) + "-" + word(q.Q3) }

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
	short := strconv.FormatFloat(value, 'g', 3, 64)
	value, _ = strconv.ParseFloat(short, 64)
	if unit == "" && value < 1000 {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return strings.ReplaceAll(humanize.SIWithDigits(value, 2, unit), " ", "")
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

type chart struct {
	Title string
	Bars  []bar
}

// bar is a row of a chart: the median, and the quartiles, as a percentage of the longest.
type bar struct {
	Row               Row
	Name, Figure      string
	From, Median, Box float64
}

// HTML writes the report as one page that needs nothing from the network: tables, and
// charts as SVG.
func (r *Report) HTML(to io.Writer) error {
	var charts []chart
	for _, name := range Workloads {
		rows := slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return row.Workload != name || !row.measured() })
		if len(rows) == 0 {
			continue
		}
		charts = append(charts, newChart(rows[0].label()+": items per second", rows))
	}
	err := page.Execute(to, struct {
		*Report
		Legend string
		Charts []chart
	}{r, legend, charts})
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func newChart(title string, rows []Row) chart {
	c, longest := chart{Title: title}, 0.0
	for _, row := range rows {
		longest = max(longest, row.Rate.Q3)
	}
	for _, row := range rows {
		if q := row.Rate; q.Count > 0 {
			c.Bars = append(c.Bars, bar{row, row.name(), figure(q.Median), 100 * q.Q1 / longest, 100 * q.Median / longest, 100 * (q.Q3 - q.Q1) / longest})
		}
	}
	return c
}
