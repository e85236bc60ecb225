package host

import (
	"fmt"
	"io"
	"slices"
)

// Verdict is what one check found.
type Verdict string

const (
	// Good needs nothing; Note is worth knowing and no mistake; Bad keeps something from working.
	Good Verdict = "ok"
	Note Verdict = "note"
	Bad  Verdict = "FAILED"
)

// Finding is a line of `gpumux doctor`.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
	// Fix says what to do; it is there whenever the verdict is Bad.
	Fix string `json:"fix,omitempty"`
}

// Failed reports whether a check failed.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Verdict == Bad })
}

// PrintFindings writes a line for each finding, and below it what to do.
func PrintFindings(to io.Writer, findings []Finding) {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	for _, f := range findings {
		fmt.Fprintf(to, "%-6s  %-*s  %s\n", f.Verdict, width, f.Check, f.Detail)
		if f.Fix != "" {
			fmt.Fprintf(to, "%-6s  %-*s  -> %s\n", "", width, "", f.Fix)
		}
	}
}
