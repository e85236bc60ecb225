package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
)

// Details is a map's progress for the Web UI, in Markdown. The kinds are sorted, so
// that a replay repeats it.
//
//workflowcheck:ignore
func Details(p gpumux.Progress, ladder []string) string {
	var b strings.Builder
	phase := string(p.Phase)
	if p.Paused {
		phase = "paused"
	}
	done := p.Succeeded + p.Failed
	percent := 100.0
	if p.Items > 0 {
		percent = 100 * float64(done) / float64(p.Items)
	}
	b.WriteString(fmt.Sprintf("**%s** over %d items on %s: %s\n\n", text.Plain(p.Task), p.Items,
		text.Plain(strings.Join(ladder, ", then ")), phase))
	b.WriteString("| finished | failed | in flight | items/s |\n|---|---|---|---|\n")
	b.WriteString(fmt.Sprintf("| %d (%.1f %%) | %d | %d chunks | %.1f |\n", done, percent, p.Failed, p.InFlight, p.Rate))
	if p.WaitingFor != "" {
		b.WriteString("\nWaits for " + text.Plain(p.WaitingFor) + "\n")
	}
	if p.Waiting > 0 {
		b.WriteString(fmt.Sprintf("\n%d items raised and wait to be tried again\n", p.Waiting))
	}
	if p.Lost != "" {
		b.WriteString("\nItems run again: " + p.Lost + "\n")
	}
	for _, pool := range p.PassedOver {
		b.WriteString("\nPassed over, since no worker has a healthy device for it: " + text.Plain(pool) + "\n")
	}
	if p.Peak != nil {
		b.WriteString("\nPeak memory per item: " + p.Peak.String() + "\n")
	}
	for _, kind := range slices.Sorted(maps.Keys(p.Faults)) {
		b.WriteString(fmt.Sprintf("\n- %d × %s", p.Faults[kind], text.Plain(string(kind))))
	}
	for _, r := range p.Recent {
		if r.Fault != nil {
			b.WriteString(fmt.Sprintf("\n- item %d: %s", r.Index, text.Plain(r.Fault.Error())))
		}
	}
	return b.String()
}

// WaitingFor names what holds a map up, as far as its workflow knows. asking: no worker
// of the pool has answered yet; spread: segments run.
func WaitingFor(p gpumux.Progress, ladder []string, asking, spread bool) string {
	serves := slices.IndexFunc(ladder, func(pool string) bool { return !slices.Contains(p.PassedOver, pool) })
	switch {
	case p.Phase == gpumux.PhaseIndexing, p.Phase == gpumux.PhaseMerging:
		return "the store"
	case p.Phase != gpumux.PhaseRunning:
		return ""
	case p.Paused && p.InFlight == 0:
		return "resume"
	case serves < 0:
		return "a worker for pool " + ladder[len(ladder)-1]
	case asking:
		return "a slot of pool " + ladder[serves]
	case p.InFlight == 0 && p.Waiting > 0:
		return "another try of items that raised"
	case p.InFlight == 0 && !spread:
		return "the store"
	}
	return ""
}
