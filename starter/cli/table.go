package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes rows in columns; the first row is the header.
func table(to io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(newVisible(to), 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// printJSON writes v for programs.
func printJSON(to io.Writer, v any) error {
	out := json.NewEncoder(to)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(v)
}

// ago writes how long ago t was.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(max(0, now.Sub(t)).Round(time.Second)) + " ago"
}

// oneLine is text without line ends, at most most characters.
func oneLine(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	return text
}
