package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/screen"
)

// causesShown is how many causes are shown to people.
const causesShown = 8

// Causes writes a line for each cause of so many failures, with an example.
func Causes(to io.Writer, indent string, failed int64, causes []starter.Cause) {
	for _, c := range causes[:min(len(causes), causesShown)] {
		like := ""
		if c.Count > 1 {
			like = humanize.Comma(c.Count) + " like "
		}
		fmt.Fprintf(to, "%s%s%s\n", indent, like, screen.Failure(c.Example))
		failed -= c.Count
	}
	if len(causes) > 0 && failed > 0 {
		fmt.Fprintf(to, "%sand %s more; every fault is in the results\n", indent, humanize.Comma(failed))
	}
}

// FaultText is what a fault says beyond its one line: the traceback and what the process printed last.
func FaultText(f gpumux.Fault) string {
	var b strings.Builder
	for _, part := range []struct{ title, text string }{{"traceback", f.Traceback}, {"the process printed last", f.Tail}} {
		if text := strings.TrimSpace(part.text); text != "" {
			fmt.Fprintf(&b, "%s:\n  %s\n", part.title, strings.ReplaceAll(text, "\n", "\n  "))
		}
	}
	return b.String()
}

// Reduced is what the values came to, shortened; empty for a map that reduces nothing.
func Reduced(s gpumux.Summary) string {
	switch {
	case s.ReduceFault != nil:
		return "not: " + screen.OneLine(s.ReduceFault.Error(), 200)
	case s.ReducedOutput != "":
		return s.ReducedOutput
	case s.Reduced != nil:
		return screen.OneLine(string(text.Unescaped(s.Reduced)), 200)
	}
	return ""
}

// Kinds writes how many items failed of what, the most first.
func Kinds(faults map[gpumux.Kind]int64) string {
	names := slices.SortedFunc(maps.Keys(faults), func(a, b gpumux.Kind) int {
		return cmp.Or(cmp.Compare(faults[b], faults[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %s", humanize.Comma(faults[name]), name)
	}
	return strings.Join(parts, ", ")
}
