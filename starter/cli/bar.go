package cli

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
)

// bar shows a map's progress: a line that is redrawn on a terminal, else a line of text now and then. One goroutine uses it.
type bar struct {
	console *console
	last    gpumux.Progress
	shown   time.Time
	// begun and base are when and from how many finished items the rate is counted: stored results of an earlier run cost no
	// time in this one.
	begun time.Time
	base  int64
	now   func() time.Time
}

func newBar(c *console) *bar { return &bar{console: c, now: time.Now} }

// Without a terminal a line appears every plainEvery while items finish, and every plainIdle while none does.
const (
	plainEvery = 5 * time.Second
	plainIdle  = 30 * time.Second
)

// show takes the newest progress.
func (b *bar) show(p gpumux.Progress) {
	now := b.now()
	if b.begun.IsZero() && p.Phase == gpumux.Running {
		b.begun, b.base = now, p.Succeeded+p.Failed
	}
	before := b.last
	b.last = p
	if b.console.quiet {
		return
	}
	if b.console.terminal() {
		b.console.show(b.line(p, b.console.width()-1))
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
		b.console.say("%s", strings.TrimSpace(b.text(p)))
	}
}

// line is the progress within width columns.
func (b *bar) line(p gpumux.Progress, width int) string {
	text := b.text(p)
	room := width - utf8.RuneCountInString(text) - utf8.RuneCountInString(p.Task) - 4
	drawn := ""
	if room >= 10 && p.Items > 0 && p.Phase != gpumux.Indexing {
		cells := min(room-room%10, 30) // in steps, so that it does not tremble with the length of the numbers
		full := int(float64(cells) * float64(p.Succeeded+p.Failed) / float64(p.Items))
		drawn = "[" + strings.Repeat("#", full) + strings.Repeat("-", cells-full) + "] "
	}
	line := p.Task + " " + drawn + text
	if runes := []rune(line); len(runes) > width && width > 0 {
		line = string(runes[:width])
	}
	return line
}

// text is the numbers: finished of all, share, rate, failures, chunks in flight, time left.
func (b *bar) text(p gpumux.Progress) string {
	done := p.Succeeded + p.Failed
	switch {
	case p.Phase == gpumux.Indexing:
		return "reading the input"
	case p.Items == 0:
		return "no items"
	}
	parts := []string{fmt.Sprintf("%s/%s  %d%%", humanize.Comma(done), humanize.Comma(p.Items), 100*done/p.Items)}
	rate := b.rate(done)
	if rate > 0 {
		parts = append(parts, perSecond(rate))
	}
	if p.Failed > 0 {
		parts = append(parts, humanize.Comma(p.Failed)+" failed")
	}
	switch {
	case p.Paused:
		parts = append(parts, "paused")
	case p.Phase == gpumux.Merging:
		parts = append(parts, "writing the results")
	default:
		parts = append(parts, fmt.Sprintf("%d in flight", p.InFlight))
		if rate > 0 && done < p.Items {
			parts = append(parts, left(float64(p.Items-done)/rate)+" left")
		}
	}
	return strings.Join(parts, "  ")
}

// rate is items per second since this process began to watch.
func (b *bar) rate(done int64) float64 {
	elapsed := b.now().Sub(b.begun).Seconds()
	if b.begun.IsZero() || elapsed < 0.5 || done <= b.base {
		return 0
	}
	return float64(done-b.base) / elapsed
}

// left writes the seconds that a map will still take, no finer than can be known.
func left(seconds float64) string {
	if seconds < 60 {
		return fmt.Sprintf("%ds", int(math.Ceil(seconds)))
	}
	return span(time.Duration(min(seconds, 1e9)) * time.Second)
}

// perSecond writes a rate with about three digits.
func perSecond(rate float64) string {
	switch {
	case rate >= 100:
		return humanize.Comma(int64(math.Round(rate))) + "/s"
	case rate >= 1:
		return fmt.Sprintf("%.1f/s", rate)
	}
	return fmt.Sprintf("%.1f/min", rate*60)
}

// span writes a duration coarsely: 850ms, 12.3s, 4m05s, 3h20m, 2d4h.
func span(d time.Duration) string {
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
