package report

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
)

// Bar shows a map's progress on a line of a terminal, and on one per stage, else a line
// now and then.
type Bar struct {
	console *Console
	last    gpumux.Progress
	shown   time.Time
	// finished has the counts over which the rate is measured. The first count leaves out
	// the stored results of an earlier run.
	finished []sample
	now      func() time.Time
	// failed reports whether the first failure was shown.
	failed bool
	// says is what the map waits for, or what engines do; any goroutine may use it.
	says atomic.Value
	// Counted are the items that finished by the map's count, which has whole chunks.
	// Finished adds what chunks in flight told last, Written are the results that are there.
	Counted, Finished, Written atomic.Int64
}

type sample struct {
	at   time.Time
	done int64
}

// rateOver is two heartbeats: over that time, or one item, the rate is counted.
const rateOver = 20 * time.Second

func NewBar(c *Console) *Bar { return &Bar{console: c, now: time.Now} }

// Say says what the map waits for, or what its engines do; empty: nothing.
func (b *Bar) Say(what string) { b.says.Store(what) }

// Without a terminal a line appears every plainEvery while items finish, else plainIdle.
const (
	plainEvery = 5 * time.Second
	plainIdle  = 30 * time.Second
)

func (b *Bar) Show(p gpumux.Progress) {
	now := b.now()
	b.Counted.Store(p.Succeeded + p.Failed)
	before := b.last
	done := max(b.Finished.Load(), b.Written.Load(), before.Succeeded+before.Failed) // a chunk that has just ended may be in no count
	p.Succeeded = max(p.Succeeded, min(done, p.Items)-p.Failed)
	b.count(now, p)
	b.last = p
	if b.console.Quiet {
		return
	}
	if !b.failed && p.Failed > 0 && len(p.Recent) > 0 && p.Recent[0].Fault != nil {
		b.failed = true
		b.console.Say("a first failure: %s", Failure(p.Recent[0], len(p.Stages) > 0))
	}
	if b.console.Redraws() {
		width, height := b.console.size()
		lines := []string{b.line(p, width-1)}
		for _, line := range StageLines(p.Stages) {
			lines = append(lines, shorten("  "+line, width-1))
		}
		b.console.Status(strings.Join(lines[:max(1, min(len(lines), height-1))], "\n"))
		return
	}
	since := now.Sub(b.shown)
	changed := before.Succeeded+before.Failed != p.Succeeded+p.Failed || before.Phase != p.Phase || before.Paused != p.Paused
	if b.shown.IsZero() {
		b.shown = now.Add(-plainEvery / 2) // the first line comes early, but not for maps that are over at once
		return
	}
	if since >= plainIdle || changed && since >= plainEvery {
		b.shown = now
		b.console.Say("%s", strings.Join(b.parts(p), "  "))
		if stages := StageLines(p.Stages); len(stages) > 0 {
			b.console.Say("  %s", strings.Join(stages, "; "))
		}
	}
}

// line fits the progress into width columns: task, bar and numbers; without room for the
// bar, task and numbers; else the beginning of the numbers.
func (b *Bar) line(p gpumux.Progress, width int) string {
	text := strings.Join(b.parts(p), "  ")
	room := width - utf8.RuneCountInString(text) - utf8.RuneCountInString(p.Task) - 4
	if room >= 10 && p.Items > 0 && p.Phase != gpumux.PhaseIndexing {
		cells := min(room-room%10, 30) // in steps, so that it does not tremble with the length of the numbers
		full := int(float64(cells) * float64(p.Succeeded+p.Failed) / float64(p.Items))
		return p.Task + " [" + strings.Repeat("#", full) + strings.Repeat("-", cells-full) + "] " + text
	}
	if whole := p.Task + " " + text; utf8.RuneCountInString(whole) <= width {
		return whole
	}
	return shorten(text, width)
}

func (b *Bar) parts(p gpumux.Progress) []string {
	done := p.Succeeded + p.Failed
	switch {
	case p.Phase == gpumux.PhaseIndexing:
		return []string{"reading the input"}
	case p.Items == 0:
		return []string{"no items"}
	}
	parts := []string{fmt.Sprintf("%d%%", 100*done/p.Items), humanize.Comma(done) + "/" + humanize.Comma(p.Items)}
	say := func(show bool, format string, args ...any) {
		if show {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	rate := b.rate(done)
	works := !p.Paused && p.Phase != gpumux.PhaseMerging
	say(p.Paused, "paused")
	say(!p.Paused && p.Phase == gpumux.PhaseMerging, "writing the results")
	say(p.Failed > 0, "%s failed", humanize.Comma(p.Failed))
	if rate > 0 {
		say(works && done < p.Items, "%s left", left(float64(p.Items-done)/rate))
		say(true, "%s", PerSecond(rate))
	}
	says, _ := b.says.Load().(string)
	say(works && says != "", "%s", says)
	say(works, "%d in flight", p.InFlight)
	return parts
}

// count records how many items have finished. A pause starts the rate anew.
func (b *Bar) count(now time.Time, p gpumux.Progress) {
	done := p.Succeeded + p.Failed
	switch n := len(b.finished); {
	case p.Paused:
		b.finished = nil
	case n == 0 && p.Phase == gpumux.PhaseRunning, n > 0 && b.finished[n-1].done != done:
		b.finished = append(b.finished, sample{now, done})
	}
}

func (b *Bar) rate(done int64) float64 {
	now := b.now()
	for len(b.finished) > 1 && b.finished[1].done < done && now.Sub(b.finished[1].at) >= rateOver {
		b.finished = b.finished[1:]
	}
	if len(b.finished) == 0 {
		return 0
	}
	first := b.finished[0]
	elapsed := now.Sub(first.at).Seconds()
	if elapsed < 0.5 || done <= first.done {
		return 0
	}
	return float64(done-first.done) / elapsed
}

func left(seconds float64) string {
	if seconds < 60 {
		return fmt.Sprintf("%ds", int(math.Ceil(seconds)))
	}
	return Span(time.Duration(min(seconds, 1e9)) * time.Second)
}
