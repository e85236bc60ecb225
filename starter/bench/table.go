package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// Print writes the report for people.
func (r *Report) Print(to io.Writer) error {
	m := r.Machine
	fmt.Fprintf(to, "%s (%s, %s), Python %s", m.Device, m.OS, plural(m.CPUs, "processor"), m.Python)
	if m.Framework != "" {
		fmt.Fprintf(to, ", %s", m.Framework)
	}
	fmt.Fprintf(to, "; %s\n", plural(r.Slots, "slot"))
	if r.Quick {
		fmt.Fprintln(to, "quick: every run is short, so the figures are rough")
	}
	for _, note := range r.Notes {
		fmt.Fprintln(to, "note: "+note)
	}
	fmt.Fprintln(to)
	var rows [][]string
	if r.Comparison != nil {
		rows = r.Comparison.table()
	} else {
		rows = r.table()
	}
	var columns strings.Builder
	w := tabwriter.NewWriter(&columns, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(columns.String()) {
		fmt.Fprintln(to, strings.TrimRight(line, " \n"))
	}
	if len(r.Sweep) > 0 {
		fmt.Fprint(to, "\nmedium items per second by slots:")
		for _, s := range r.Sweep {
			fmt.Fprintf(to, "  %d: %s", s.Slots, figure(s.Rate))
		}
		fmt.Fprintln(to)
	}
	if len(r.Advice) > 0 {
		fmt.Fprintln(to)
	}
	for _, line := range r.Advice {
		fmt.Fprintln(to, "- "+line)
	}
	_, err := fmt.Fprintf(to, "\nmeasured in %s\n", r.Took.Round(time.Second/10))
	return err
}

// table is a row per workload and way; the first is the header.
func (r *Report) table() [][]string {
	memory := false
	for _, row := range r.Rows {
		memory = memory || row.Workload == "oom"
	}
	header := []string{"WORKLOAD", "WAY", "SLOTS", "ITEMS", "START", "MIN", "MEDIAN", "P99", "TOTAL", "ITEMS/S", "OF BARE"}
	if memory {
		header = append(header, "CAME TO")
	}
	rows := [][]string{header}
	last := ""
	for _, row := range r.Rows {
		name := label(row.Workload, row.Size)
		if name == last {
			name = ""
		} else {
			last = name
		}
		cells := []string{name, string(row.Way), fmt.Sprint(row.Slots), humanize.Comma(int64(row.Items)), seconds(row.Start),
			seconds(row.Min), seconds(row.Median), seconds(row.P99), seconds(row.Total), figure(row.Rate), percent(row.OfBare)}
		if memory {
			cells = append(cells, row.cameTo())
		}
		rows = append(rows, cells)
	}
	return rows
}

// cameTo says of a row of the oom workload, or of one with faults, what became of the items.
func (r Row) cameTo() string {
	switch {
	case r.Workload == "oom" && r.Way == Bare:
		return "all finished, without a budget"
	case r.Workload == "oom" || r.failed() > 0:
		return outcomeText(r)
	}
	return ""
}

// table compares the tools.
func (c *Comparison) table() [][]string {
	rates, ratios := c.rates()
	items := humanize.Comma(int64(c.Items)) + " trivial items"
	row := func(what, items string, rate, ratio float64) []string {
		return []string{what, items, figure(rate), times(ratio)}
	}
	rows := [][]string{
		{"TOOL", "WHAT", "ITEMS/S", "GPUMUX DOES"},
		row("gpumux", items+", submission to merged file, "+plural(c.Slots, "slot"), rates.Gpumux, ratios.Gpumux),
		row(fmt.Sprintf("multiprocessing.Pool(%d)", c.Slots), items+", chunksize 1", rates.PoolOne, ratios.PoolOne),
		row(fmt.Sprintf("multiprocessing.Pool(%d)", c.Slots), items+", default chunksize", rates.PoolDefault, ratios.PoolDefault),
		row("plain Temporal", humanize.Comma(int64(c.Activities))+" activities in Go that do nothing", rates.Activity, ratios.Activity),
	}
	if rates.Dask > 0 {
		what := fmt.Sprintf("%s trivial items, a task each, %s", humanize.Comma(int64(c.Activities)), plural(c.Slots, "worker"))
		rows = append(rows, row("dask.distributed", what, rates.Dask, ratios.Dask))
	}
	return rows
}

// seconds writes a time with three digits: 18.3µs, 250ms, 4.21s.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	unit := time.Nanosecond
	for next := 1000 * unit; d >= next; next *= 10 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// figure writes a rate.
func figure(rate float64) string {
	switch {
	case rate >= 100:
		return humanize.Comma(int64(rate + 0.5))
	case rate >= 10:
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.2f", rate)
}

// percent writes a share; a small one keeps a digit that says something.
func percent(share float64) string {
	switch p := share * 100; {
	case p == 0:
		return "-"
	case p < 0.1:
		return "<0.1%"
	case p < 10:
		return fmt.Sprintf("%.1f%%", p)
	default:
		return fmt.Sprintf("%.0f%%", p)
	}
}

// times writes a ratio.
func times(ratio float64) string {
	switch {
	case ratio >= 100:
		return humanize.Comma(int64(ratio+0.5)) + "×"
	case ratio >= 10:
		return fmt.Sprintf("%.1f×", ratio)
	}
	return fmt.Sprintf("%.2f×", ratio)
}
