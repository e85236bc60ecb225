package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

func (m *mapping) progress(now time.Time) gpumux.Progress {
	p := gpumux.Progress{
		Task: m.in.Task, Phase: m.phase, Items: m.engine.total, Succeeded: m.engine.counts.Succeeded, Failed: m.engine.counts.Failed,
		Faults: m.engine.counts.Faults, InFlight: m.engine.inFlight, Window: m.engine.sizer.Whole(), Chunk: int(m.engine.sizer.Largest),
		Chunks: m.engine.chunks, Paused: m.engine.paused, Started: m.started, Recent: m.engine.recent, Output: m.in.Output,
		Peak: m.engine.peaks.Known(), Waiting: m.engine.waiting(now), Lost: m.lost, PassedOver: m.engine.passedOver(false),
	}
	for _, id := range sortedKeys(m.segmentsOpen) {
		r := m.segmentsOpen[id].last
		p.Succeeded += r.Succeeded
		p.Failed += r.Failed
		p.Chunks += r.Chunks
		p.InFlight += r.InFlight
		for _, pool := range r.PassedOver {
			if !slices.Contains(p.PassedOver, pool) {
				p.PassedOver = append(p.PassedOver, pool)
			}
		}
	}
	if elapsed := now.Sub(m.started).Seconds(); elapsed > 0 {
		p.Rate = float64(p.Succeeded+p.Failed) / elapsed
	}
	return p
}

// show sets the Markdown that the Web UI shows as the workflow's current details.
func (m *mapping) show(ctx workflow.Context) {
	p := m.progress(workflow.Now(ctx))
	workflow.SetCurrentDetails(ctx, details(p, m.in.Rungs()))
	// To set an attribute that the server lacks would stop the workflow. A run that was
	// started with it shows that the server has it.
	told, has := workflow.GetTypedSearchAttributes(ctx).GetInt64(searchFailed)
	if has && (told == 0 && p.Failed > 0 || m.phase == gpumux.Done && told != p.Failed) {
		if err := workflow.UpsertTypedSearchAttributes(ctx, searchFailed.ValueSet(p.Failed)); err != nil {
			workflow.GetLogger(ctx).Warn("the number of failed items cannot be searched for", "error", err)
		}
	}
}

var searchFailed = temporal.NewSearchAttributeKeyInt64(names.SearchFailed)

func details(p gpumux.Progress, ladder []string) string {
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
	for _, kind := range sortedKeys(p.Faults) {
		b.WriteString(fmt.Sprintf("\n- %d × %s", p.Faults[kind], text.Plain(string(kind))))
	}
	for _, r := range p.Recent {
		if r.Fault != nil {
			b.WriteString(fmt.Sprintf("\n- item %d: %s", r.Index, text.Plain(r.Fault.Error())))
		}
	}
	return b.String()
}
