package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
)

// Details is a map's progress for the Web UI, in Markdown. The ladder of a map with
// stages is all their pools. The kinds are sorted, so that a replay repeats it.
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
	b.WriteString(stages(p.Stages))
	b.WriteString(text.When(p.WaitingFor != "", "\nWaits for %s\n", text.Plain(p.WaitingFor)))
	b.WriteString(text.When(p.Waiting > 0, "\n%d items raised and wait to be tried again\n", p.Waiting))
	b.WriteString(text.When(p.Lost != "", "\nItems run again: %s\n", p.Lost))
	for _, pool := range p.PassedOver {
		b.WriteString("\nPassed over, since no worker has a healthy device for it: " + text.Plain(pool) + "\n")
	}
	b.WriteString(text.When(p.Peak != nil, "\nPeak memory per item: %s\n", p.Peak))
	b.WriteString(text.When(p.GPU != nil, "\nGPU: %s\n", p.GPU))
	for _, kind := range slices.Sorted(maps.Keys(p.Faults)) {
		b.WriteString(fmt.Sprintf("\n- %d × %s", p.Faults[kind], text.Plain(string(kind))))
	}
	for _, r := range p.Recent {
		if r.Fault != nil {
			stage := text.When(len(p.Stages) > 0 && r.Fault.Task != "", "%s, ", text.Plain(r.Fault.Task))
			b.WriteString(fmt.Sprintf("\n- %sitem %d: %s", stage, r.Index, text.Plain(r.Fault.Error())))
		}
	}
	return b.String()
}

// stages is a table of them, and what would make the map faster.
func stages(all []gpumux.StageProgress) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n| stage | on | finished | failed | running | waiting | slots | items/s of them |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range all {
		task := strings.ReplaceAll(text.Plain(s.Task), "|", "¦") // it would end the cell, even in code
		b.WriteString(fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d | %.1f |\n", task, text.Plain(strings.Join(s.Ladder, ", then ")), s.Succeeded+s.Failed,
			s.Failed, s.Running, s.Waiting, s.Slots, s.Rate()))
	}
	advice := text.Plain(gpumux.Advice(all))
	return b.String() + text.When(advice != "", "\n%s\n", advice)
}

// WaitingFor names what holds a map up, as far as its workflow knows. The ladder is that
// of a map without stages. asking: no worker of the pool has answered yet; spread:
// segments run.
func WaitingFor(p gpumux.Progress, ladder []string, asking, spread bool) string {
	ladders := [][]string{}
	for _, s := range p.Stages { // the last ones still get items from one that has some
		if len(ladders) > 0 || s.Running+s.Waiting > 0 {
			ladders = append(ladders, s.Ladder)
		}
	}
	if len(ladders) == 0 {
		ladders = append(ladders, ladder)
	}
	unserved, slot := "", ""
	for _, pools := range ladders {
		if serves := slices.IndexFunc(pools, func(pool string) bool { return !slices.Contains(p.PassedOver, pool) }); serves >= 0 {
			slot = cmp.Or(slot, pools[serves])
		} else {
			unserved = cmp.Or(unserved, pools[len(pools)-1])
		}
	}
	switch {
	case p.Phase == gpumux.PhaseIndexing, p.Phase == gpumux.PhaseMerging:
		return "the store"
	case p.Phase != gpumux.PhaseRunning:
		return ""
	case p.Paused && p.InFlight == 0:
		return "resume"
	case unserved != "":
		return "a worker for pool " + unserved
	case asking:
		return "a slot of pool " + slot
	case p.InFlight == 0 && p.Waiting > 0:
		return "another try of items that raised"
	case p.InFlight == 0 && !spread:
		return "the store"
	}
	return ""
}
