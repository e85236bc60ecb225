package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
)

// Table writes rows in columns; the first row is the header.
func Table(to io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(Visible(to), 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// Fields writes a description: a line for each name with its text, unless that is empty.
func Fields(to io.Writer, namesAndTexts ...string) {
	for pair := range slices.Chunk(namesAndTexts, 2) {
		if pair[1] != "" {
			fmt.Fprintf(Visible(to), "%-10s %s\n", pair[0], pair[1])
		}
	}
}

// Engines says what the engines of language models do together where these items run.
func Engines(items ...gpumux.RunningItem) string {
	all, caches, starts := map[string]float64{}, 0, ""
	for _, item := range items {
		if item.Index < 0 {
			starts = "waits for the engine to start"
		}
		var engine map[string]float64
		_ = json.Unmarshal([]byte(item.Progress), &engine) // what is no number is no engine's
		if _, is := engine["prompt_tokens_per_second"]; is {
			for name, number := range engine {
				all[name] += number
			}
			if _, has := engine["cache_hits"]; has {
				caches++
			}
		}
	}
	if len(all) == 0 {
		return starts
	}
	return fmt.Sprintf("%s tokens/s in, %s out, %.0f running", humanize.Comma(int64(all["prompt_tokens_per_second"])), humanize.Comma(int64(all["generation_tokens_per_second"])), all["running"]) +
		text.When(all["waiting"] > 0, ", %.0f waiting", all["waiting"]) + text.When(caches > 0, ", cache %.0f%%", 100*all["cache_hits"]/float64(caches))
}

// OneLine joins the lines of a text and cuts it to limit characters.
func OneLine(text string, limit int) string {
	return shorten(strings.Join(strings.Fields(text), " "), limit)
}

func shorten(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// Failure names the item of a result, in which stage and why it failed, in one line.
func Failure(r gpumux.Result, stages bool) string {
	fault := *r.Fault
	fault.Index = &r.Index
	return text.When(stages && fault.Task != "", "%s, ", OneLine(fault.Task, 60)) + OneLine(fault.Which(), 80) +
		text.When(r.Key != nil, ", key %s", OneLine(string(r.Key), 40)) + ": " + OneLine(fault.Error(), 200)
}

// Count writes a number; one below 0 is not known.
func Count(n int64) string {
	if n < 0 {
		return "-"
	}
	return humanize.Comma(n)
}

// PerSecond writes a rate with about three digits.
func PerSecond(rate float64) string {
	switch {
	case rate >= 100:
		return humanize.Comma(int64(math.Round(rate))) + "/s"
	case rate >= 1:
		return fmt.Sprintf("%.1f/s", rate)
	}
	return fmt.Sprintf("%.1f/min", rate*60)
}

// itemsPerSecond is PerSecond in a column of that name.
func itemsPerSecond(rate float64) string {
	if rate <= 0 {
		return "-"
	}
	return strings.TrimSuffix(PerSecond(rate), "/s")
}

// Known writes a size; 0 is not known.
func Known(size gpumux.Size) string {
	if size == 0 {
		return "-"
	}
	return size.String()
}

// Ago writes how long ago t was.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Span(max(0, now.Sub(t)).Round(time.Second)) + " ago"
}

// Span writes a duration coarsely: 850ms, 12.3s, 4m05s, 3h20m, 2d4h.
func Span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
