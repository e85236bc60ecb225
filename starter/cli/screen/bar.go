package screen

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/gpumux/gpumux"
)

// Bar shows a map's progress: a line that is redrawn on a terminal, else a line of text now and then. One goroutine uses it.
type Bar struct {
	console *Console
	last    gpumux.Progress
	shown   time.Time
	// finished are when how many items had finished, as far back as the rate is counted. The first is of the beginning: stored results
	// of an earlier run cost no time in this one.
	finished []sample
	now      func() time.Time
	// retried is how many chunks in flight are not in their first attempt. Another goroutine may set it.
	retried atomic.Int64
	// failed says that the first failure was told.
	failed bool
}

// sample is how many items had finished at a time.
type sample struct {
	at   time.Time
	done int64
}

// rateOver is the time over which the rate is counted, or longer where fewer than one item finished in it.
const rateOver = 10 * time.Second

// NewBar shows progress on c.
func NewBar(c *Console) *Bar { return &Bar{console: c, now: time.Now} }

// Without a terminal a line appears every plainEvery while items finish, and every plainIdle while none does.
const (
	plainEvery = 5 * time.Second
	plainIdle  = 30 * time.Second
)

// Show takes the newest progress.
func (b *Bar) Show(p gpumux.Progress) {
	now := b.now()
	b.count(now, p)
	before := b.last
	b.last = p
	if b.console.Quiet {
		return
	}
	if !b.failed && p.Failed > 0 && len(p.Recent) > 0 && p.Recent[0].Fault != nil {
		b.failed = true
		b.console.Say("a first failure: %s", Failure(p.Recent[0]))
	}
	if b.console.Redraws() {
		b.console.Status(b.line(p, b.console.width()-1))
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
		b.console.Say("%s", strings.TrimSpace(b.text(p)))
	}
}

// Retried takes how many chunks in flight are not in their first attempt.
func (b *Bar) Retried(chunks int64) { b.retried.Store(chunks) }

// part is a field of the progress. Of a line that is too long the parts of the highest rank are left out first.
type part struct {
	text string
	rank int
}

// taskRank is the rank of the task's name.
const taskRank = 6

// line is the progress within width columns. Parts that do not fit are left out whole.
func (b *Bar) line(p gpumux.Progress, width int) string {
	parts := b.parts(p)
	text := join(parts)
	room := width - utf8.RuneCountInString(text) - utf8.RuneCountInString(p.Task) - 4
	if room >= 10 && p.Items > 0 && p.Phase != gpumux.Indexing {
		cells := min(room-room%10, 30) // in steps, so that it does not tremble with the length of the numbers
		full := int(float64(cells) * float64(p.Succeeded+p.Failed) / float64(p.Items))
		return p.Task + " [" + strings.Repeat("#", full) + strings.Repeat("-", cells-full) + "] " + text
	}
	task := p.Task + " "
	for utf8.RuneCountInString(task+text) > width && len(parts) > 0 {
		last := slices.IndexFunc(parts, func(one part) bool {
			return !slices.ContainsFunc(parts, func(other part) bool { return other.rank > one.rank })
		})
		if task != "" && parts[last].rank < taskRank {
			task = ""
			continue
		}
		parts = slices.Delete(parts, last, last+1)
		text = join(parts)
	}
	return task + text
}

func join(parts []part) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.text
	}
	return strings.Join(texts, "  ")
}

// text is the whole progress.
func (b *Bar) text(p gpumux.Progress) string { return join(b.parts(p)) }

// parts are the numbers: finished of all, share, rate, failures, chunks in flight, time left.
func (b *Bar) parts(p gpumux.Progress) []part {
	done := p.Succeeded + p.Failed
	switch {
	case p.Phase == gpumux.Indexing:
		return []part{{"reading the input", 1}}
	case p.Items == 0:
		return []part{{"no items", 1}}
	}
	parts := []part{
		{humanize.Comma(done) + "/" + humanize.Comma(p.Items), 2},
		{fmt.Sprintf("%d%%", 100*done/p.Items), 1},
	}
	rate := b.rate(done)
	if rate > 0 {
		parts = append(parts, part{PerSecond(rate), 7})
	}
	if p.Failed > 0 {
		parts = append(parts, part{humanize.Comma(p.Failed) + " failed", 4})
	}
	if n := b.retried.Load(); n > 0 && p.Phase == gpumux.Running {
		parts = append(parts, part{humanize.Comma(n) + " tried again", 9})
	}
	switch {
	case p.Paused:
		parts = append(parts, part{"paused", 3})
	case p.Phase == gpumux.Merging:
		parts = append(parts, part{"writing the results", 3})
	default:
		parts = append(parts, part{fmt.Sprintf("%d in flight", p.InFlight), 8})
		if rate > 0 && done < p.Items {
			parts = append(parts, part{left(float64(p.Items-done)/rate) + " left", 5})
		}
	}
	return parts
}

// count notes how many items have finished. A pause is no part of the rate.
func (b *Bar) count(now time.Time, p gpumux.Progress) {
	done := p.Succeeded + p.Failed
	switch n := len(b.finished); {
	case p.Paused:
		b.finished = nil
	case n == 0 && p.Phase == gpumux.Running, n > 0 && b.finished[n-1].done != done:
		b.finished = append(b.finished, sample{now, done})
	}
}

// rate is items per second in the last seconds.
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

// left writes the seconds that a map will still take, no finer than can be known.
func left(seconds float64) string {
	if seconds < 60 {
		return fmt.Sprintf("%ds", int(math.Ceil(seconds)))
	}
	return Span(time.Duration(min(seconds, 1e9)) * time.Second)
}
