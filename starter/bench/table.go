package bench

import (
	"fmt"
	"io"
	"strconv"
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
	fmt.Fprintln(to)
	for _, one := range r.Unmeasured {
		fmt.Fprintf(to, "not measured: sharing %s: %s\n", one.Sharing, one.Reason)
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
	if r.Comparison == nil {
		fmt.Fprintln(to, "\n"+legend)
		r.printUnshared(to)
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

// printUnshared says what the unshared device did in turns with each way. Shares are of that, not of its own row.
func (r *Report) printUnshared(to io.Writer) {
	for _, row := range r.Rows {
		if (row.Way == Persistent || row.Way == Fresh) && row.Unshared.Count > 0 {
			fmt.Fprintf(to, "In turns with %s of %s, %d clients, the unshared device did %s/s.\n", row.Way, row.Workload, row.Clients, figure(row.Unshared.Median))
		}
	}
}

// legend says what the columns are.
const legend = "THROUGHPUT and LATENCY are shares of one bare process alone, the unshared device; OF BARE is of as many bare processes.\n" +
	"± is a 95% interval of the median (? with fewer than six rounds), Q1-Q3 are quartiles: of rounds, and of single items. PER MAP is what a map takes beside its items."

// table is a row per workload and way; the first is the header.
func (r *Report) table() [][]string {
	rows := [][]string{{"WORKLOAD", "WAY", "SHARING", "CLIENTS", "ITEMS/S", "Q1-Q3", "THROUGHPUT", "LATENCY", "ITEM", "Q1-Q3", "OF BARE", "PER MAP"}}
	line := 0
	for i, row := range r.Rows {
		if i == 0 || r.Rows[i-1].Workload != row.Workload {
			line = 0
		}
		name := ""
		switch {
		case line == 0:
			name = row.Workload
		case line == 1 && row.Size > 0:
			name = label("", row.Size)
		}
		line++
		cells := []string{name, string(row.Way), row.Sharing, fmt.Sprint(row.Clients)}
		switch {
		case row.measured() && row.Rate.Count == 0:
			cells = append(cells, "unknown: the slots hardly ever worked at the same time")
		case row.measured():
			cells = append(cells, figure(row.Rate.Median), figure(row.Rate.Q1)+"-"+figure(row.Rate.Q3), row.OfUnshared.share(),
				percent(row.Latency.Median), seconds(row.Item.Median), between(seconds(row.Item.Q1), seconds(row.Item.Q3)), row.OfBare.share(),
				row.perMap())
		default:
			cells = append(cells, outcomeText(row))
		}
		rows = append(rows, cells)
	}
	return rows
}

// share is "93% ±2%".
func (s Spread) share() string {
	switch {
	case s.Count == 0:
		return ""
	case s.Low == s.High && s.known():
		return percent(s.Median)
	case !s.known():
		return percent(s.Median) + " ±?"
	}
	return percent(s.Median) + " ±" + percent((s.High-s.Low)/2)
}

// perMap is the fixed cost of a map.
func (r Row) perMap() string {
	if r.PerMap.Count == 0 {
		return ""
	}
	return seconds(r.PerMap.Median)
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

// between writes two times, with the unit once where it is the same.
func between(from, to string) string {
	const digits = "0123456789."
	if number := strings.TrimRight(from, "nµms"); strings.TrimLeft(from, digits) == strings.TrimLeft(to, digits) {
		from = number
	}
	return from + "-" + to
}

// figure writes a rate.
func figure(rate float64) string {
	switch {
	case rate >= 1e6:
		return fmt.Sprintf("%.3gM", rate/1e6)
	case rate >= 1e4:
		return fmt.Sprintf("%.3gk", rate/1e3)
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
	case share >= 10:
		return times(share)
	case p == 0:
		return "-"
	case p < 0.001:
		return "<0.001%"
	case p < 10:
		return strconv.FormatFloat(p, 'g', 2, 64) + "%"
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
