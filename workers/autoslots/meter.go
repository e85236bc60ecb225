package autoslots

import (
	"sync"
	"time"

	"github.com/gpumux/gpumux/workers/pool"
)

const (
	// atWork is the share of the slots that must be at work for time to count; not all, because of many one is often between two
	// chunks.
	atWork = 7.0 / 8
	// stretchLeast is the least time that is looked at on its own, so that short items cost little.
	stretchLeast = 5 * time.Millisecond
	// stretches is how many of them each slot must have brought to a measurement.
	stretches = 2
	// hungry is how many times longer than a measurement the slots may lack work before that is told.
	hungry = 20
)

// meter measures what the slots of a pool get done: items per second of one task, while all slots have work.
//
// Only time counts in which all slots are at work on the task: none waits for a chunk or starts its process, none is left that
// should go, no other task runs beside it and no device is taken whole. A stretch is the time from one result of a slot to a later
// one of the same call. Its items count as far as its time did, so that neither the size of chunks nor a lack of work shows.
type meter struct {
	now func() time.Time
	// length is the time for which all slots must have worked for a measurement.
	length time.Duration
	// measured takes each measurement; one that comes before the last was fetched waits and gets longer.
	measured chan measurement

	mu      sync.Mutex // guards what follows, and every field of a Stint
	task    string
	want    int // slots that are to be at work
	epoch   int
	stints  map[*Stint]bool
	peaks   map[string]int64 // the most bytes that an item of a task held
	last    time.Time        // when a call of the task ended last
	paused  time.Duration    // the longest time without one since the last measurement
	at      time.Time        // up to when valid and lack are summed
	valid   float64          // seconds that count
	base    float64          // valid at the last reset
	settled bool             // as many stretches have ended since as there are slots

	// Of the measurement to be: valid as it began, stretches, and items.
	from  float64
	parts int
	items float64
	lack  float64 // seconds in which slots had no work
}

// measurement is items per second over all slots of a pool.
type measurement struct {
	epoch int
	task  string
	want  int
	rate  float64
	// paused is the longest time since the last measurement in which nothing of the task ran.
	paused time.Duration
	// hungry says that there was no rate to be had for want of work.
	hungry bool
}

// Stint is one call in its slot.
type Stint struct {
	m      *meter
	pool   *pool.Pool
	handle *pool.Handle
	task   string
	whole  bool
	warm   bool // a result has come from this process
	start  time.Time
	valid  float64 // of the meter as the stretch began
	items  int
	peak   int64
}

func newMeter(length time.Duration) *meter {
	return &meter{now: time.Now, length: length, measured: make(chan measurement, 1), stints: map[*Stint]bool{}, peaks: map[string]int64{}}
}

// begin is called before a call runs in its place. A nil Stint measures nothing.
func (m *meter) begin(p *pool.Pool, h *pool.Handle, task string, whole bool) *Stint {
	s := &Stint{m: m, pool: p, handle: h, task: task, whole: whole, warm: !whole && p.Warm(h, task)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum()
	m.adopt(s)
	if task == m.task && !m.runs(task) && !m.last.IsZero() {
		m.paused = max(m.paused, m.at.Sub(m.last))
	}
	m.stints[s] = true
	s.stretch()
	return s
}

// Done is called with every result, and the bytes that its item held at most, where that is known.
func (s *Stint) Done(peak int64) {
	if s == nil || s.whole {
		return
	}
	if peak > s.peak {
		s.peak = peak
		s.m.mu.Lock()
		s.m.peaks[s.task] = max(s.m.peaks[s.task], peak)
		s.m.mu.Unlock()
	}
	now := s.m.now()
	s.items++
	if s.warm && now.Sub(s.start) < stretchLeast {
		return
	}
	if !s.warm {
		s.pool.SetWarm(s.handle, s.task)
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.sum()
	s.m.adopt(s)
	if s.warm {
		s.m.count(s)
	}
	s.warm = true
	s.stretch()
}

// End is called when the call is over.
func (s *Stint) End() {
	if s == nil {
		return
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.sum()
	if s.warm && s.items > 0 {
		s.m.count(s)
	}
	delete(s.m.stints, s)
	if s.task == s.m.task {
		s.m.last = s.m.at
	}
}

// stretch begins the next one; the caller holds the lock and has called sum.
func (s *Stint) stretch() {
	s.start, s.valid, s.items = s.m.at, s.m.valid, 0
}

// reset begins anew with so many slots.
func (m *meter) reset(want int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum()
	m.want = want
	m.restart()
}

// follow resets when the number of slots is another.
func (m *meter) follow(want int) {
	m.mu.Lock()
	same := want == m.want
	m.mu.Unlock()
	if !same {
		m.reset(want)
	}
}

// peak is the most bytes that an item of a task held; 0 when it was not measured.
func (m *meter) peak(task string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peaks[task]
}

// restart forgets the measurement to be; the caller holds the lock and has called sum.
func (m *meter) restart() {
	m.epoch++
	m.base, m.settled = m.valid, false
	m.clear()
}

func (m *meter) clear() { m.from, m.parts, m.items, m.lack = m.valid, 0, 0, 0 }

// current reports whether a measurement is of the present slots and task.
func (m *meter) current(of measurement) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return of.epoch == m.epoch
}

// adopt makes a Stint's task the one that is measured when nothing of the present one has run for a while. The caller holds the
// lock and has called sum.
func (m *meter) adopt(s *Stint) {
	if s.task == m.task || s.whole {
		return
	}
	if m.task != "" && (m.runs(m.task) || m.at.Sub(m.last) < m.length) {
		return
	}
	m.task, m.last, m.paused = s.task, time.Time{}, 0
	m.restart()
}

// runs reports whether a call of a task runs; the caller holds the lock.
func (m *meter) runs(task string) bool {
	for s := range m.stints {
		if s.task == task {
			return true
		}
	}
	return false
}

// sum brings the sums up to now; the caller holds the lock.
func (m *meter) sum() {
	now := m.now()
	passed := now.Sub(m.at).Seconds()
	m.at = now
	working, starting, foreign := 0, 0, 0
	for s := range m.stints {
		switch {
		case s.task != m.task || s.whole:
			foreign++
		case s.warm:
			working++
		default:
			starting++
		}
	}
	switch {
	case foreign > 0 || working == 0 || working > m.want:
	case float64(working) >= atWork*float64(m.want):
		m.valid += passed
	case starting == 0:
		m.lack += passed
	}
}

// count takes in a stretch that has ended; the caller holds the lock and has called sum.
func (m *meter) count(s *Stint) {
	if s.task != m.task {
		return
	}
	if m.lack > hungry*m.length.Seconds() && m.lack > 2*(m.valid-m.from) {
		m.tell(measurement{hungry: true})
		return
	}
	share := 1.0 // a stretch without length is the rest of a micro-batch
	if took := m.at.Sub(s.start).Seconds(); took > 0 {
		share = min(1, (m.valid-max(s.valid, m.base))/took)
	}
	if share == 0 {
		return
	}
	m.parts++
	m.items += share * float64(s.items)
	if !m.settled {
		// What a measurement counts too much of items that ran as it began, it lacks of those that run as it ends, except after
		// a reset.
		if m.settled = m.parts >= m.want; m.settled {
			m.clear()
		}
		return
	}
	if passed := m.valid - m.from; passed >= m.length.Seconds() && m.parts >= stretches*m.want {
		m.tell(measurement{rate: m.items / passed})
	}
}

// tell hands a measurement on, unless the last one still waits.
func (m *meter) tell(found measurement) {
	found.epoch, found.task, found.want, found.paused = m.epoch, m.task, m.want, m.paused
	select {
	case m.measured <- found:
		m.paused = 0
		m.clear()
	default:
	}
}
