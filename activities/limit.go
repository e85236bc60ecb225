package activities

import "time"

// limit is the clock of a chunk that may only take so long. It starts at the first
// result, so that the start of a process and a model that the first item loads do not
// count. The zero value never ends.
type limit struct {
	after       time.Duration
	first, last time.Time
	results     int64
	// half is when half of the time was over, before how many results there were by then.
	half   time.Time
	before int64
}

// note counts a result.
func (l *limit) note() {
	if l.after == 0 {
		return
	}
	l.last = time.Now()
	l.results++
	switch {
	case l.first.IsZero():
		l.first = l.last
	case l.half.IsZero() && l.last.Sub(l.first) >= l.after/2:
		l.half, l.before = l.last, l.results
	}
}

// over reports whether no further item should be taken.
func (l *limit) over() bool {
	return l.after > 0 && !l.first.IsZero() && time.Since(l.first) >= l.after
}

// pace is the time per item after half of the time. The items before may have been
// faster.
func (l *limit) pace() time.Duration {
	from, results := l.half, l.results-l.before
	if results < 1 || from.IsZero() {
		from, results = l.first, max(1, l.results-1)
	}
	return max(1, l.last.Sub(from)/time.Duration(results))
}
