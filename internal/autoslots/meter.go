package autoslots

import (
	"sync"
	"time"

	"github.com/gpumux/gpumux/internal/pool"
)

const (
	// atWork is the share of slots that must work for time to count: some change chunks.
	atWork = 7.0 / 8
	// stretchMin is the least length of a stretch, so short items cost little.
	stretchMin = 5 * time.Millisecond
	// stretches is the least number of them per slot in a measurement.
	stretches = 2
)

// meter measures a pool's items per second of one task, while all slots have work.
//
// Time counts only while all slots work on the task: none waits for a chunk, starts its
// process or is surplus, and no other task runs. A stretch is the time from one result of
// a slot to a later one of the same call. Its items count in proportion to its valid
// time, so neither the size of chunks nor a lack of work distorts the rate.
type meter struct {
	now func() time.Time
	// length is the time for which all slots must have worked for a measurement.
	length time.Duration
	// measured gets each measurement; while it is full, the next one gets longer.
	measured chan measurement

	mu      sync.Mutex // guards what follows, and every field of a Stint
	task    string
	want    int // slots that should work
	epoch   int
	stints  map[*Stint]bool
	peaks   map[string]int64 // the most bytes of an item, by task
	last    time.Time        // the end of the task's last call
	at      time.Time        // the end of what valid sums up
	valid   float64          // seconds that count
	base    float64          // valid at the last reset
	settled bool             // as many stretches have ended since as there are slots

	// The measurement in progress: valid at its beginning, its stretches and items.
	from  float64
	ended int
	items float64
}

// measurement is items per second over all slots of a pool.
type measurement struct {
	epoch int
	task  string
	want  int
	rate  float64
}

// Stint is a call in its slot, or several that share it.
type Stint struct {
	m     *meter
	calls int
	pool  *pool.Pool
	seat  *pool.Seat
	task  string
	whole bool
	warm  bool // this process has given a result
	start time.Time
	valid float64 // of the meter at the stretch's beginning
	items int
	peak  int64
}

func newMeter(length time.Duration) *meter {
	return &meter{now: time.Now, length: length, measured: make(chan measurement, 1), stints: map[*Stint]bool{}, peaks: map[string]int64{}}
}

// newStint is called before a call runs in its slot. A nil Stint measures nothing.
func (m *meter) newStint(p *pool.Pool, h *pool.Seat, task string, whole bool) *Stint {
	s := &Stint{m: m, calls: 1, pool: p, seat: h, task: task, whole: whole, warm: !whole && p.Warm(h, task)}
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.stints {
		if other.seat == h {
			other.calls++
			return other
		}
	}
	m.advance()
	m.switchTo(s)
	m.stints[s] = true
	s.stretch()
	return s
}

// Done is called with every result, and the peak bytes of its item where that is known.
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
	if s.warm && now.Sub(s.start) < stretchMin {
		return
	}
	if !s.warm {
		s.pool.SetWarm(s.seat, s.task)
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.advance()
	s.m.switchTo(s)
	if s.warm {
		s.m.add(s)
	}
	s.warm = true
	s.stretch()
}

// End is called when a call is over.
func (s *Stint) End() {
	if s == nil {
		return
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.calls--; s.calls > 0 {
		return
	}
	s.m.advance()
	if s.warm && s.items > 0 {
		s.m.add(s)
	}
	delete(s.m.stints, s)
	if s.task == s.m.task {
		s.m.last = s.m.at
	}
}

// stretch begins the next one; the caller holds the lock and has called advance.
func (s *Stint) stretch() {
	s.start, s.valid, s.items = s.m.at, s.m.valid, 0
}

// reset begins anew with another number of slots.
func (m *meter) reset(want int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if want != m.want {
		m.advance()
		m.want = want
		m.restart()
	}
}

// peak is the most bytes of a task's item; 0 when that was not measured.
func (m *meter) peak(task string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peaks[task]
}

// restart drops the measurement in progress, under the lock and after advance.
func (m *meter) restart() {
	m.epoch++
	m.base, m.settled = m.valid, false
	m.clear()
}

func (m *meter) clear() { m.from, m.ended, m.items = m.valid, 0, 0 }

// current reports whether a measurement is of the present number of slots and task.
func (m *meter) current(of measurement) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return of.epoch == m.epoch
}

// switchTo makes a Stint's task the measured one when the present one has not run for a
// while. The caller holds the lock and has called advance.
func (m *meter) switchTo(s *Stint) {
	if s.task == m.task || s.whole {
		return
	}
	if m.task != "" && (m.runs(m.task) || m.at.Sub(m.last) < m.length) {
		return
	}
	m.task, m.last = s.task, time.Time{}
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

// advance brings the sums up to now; the caller holds the lock.
func (m *meter) advance() {
	now := m.now()
	passed := now.Sub(m.at).Seconds()
	m.at = now
	working := 0
	for s := range m.stints {
		if s.task != m.task || s.whole {
			return
		}
		if s.warm {
			working++
		}
	}
	if working > 0 && working <= m.want && float64(working) >= atWork*float64(m.want) {
		m.valid += passed
	}
}

// add adds a stretch that has ended; the caller holds the lock and has called advance.
func (m *meter) add(s *Stint) {
	if s.task != m.task {
		return
	}
	share := 1.0 // a stretch without length is the rest of a micro-batch
	if took := m.at.Sub(s.start).Seconds(); took > 0 {
		share = min(1, (m.valid-max(s.valid, m.base))/took)
	}
	if share == 0 {
		return
	}
	m.ended++
	m.items += share * float64(s.items)
	if !m.settled {
		// A measurement counts too much of the items at its beginning and too little of those
		// at its end. After a reset only the latter holds.
		if m.settled = m.ended >= m.want; m.settled {
			m.clear()
		}
		return
	}
	if passed := m.valid - m.from; passed >= m.length.Seconds() && m.ended >= stretches*m.want {
		m.publish(m.items / passed)
	}
}

// publish sends a measurement, unless the last one still waits.
func (m *meter) publish(rate float64) {
	select {
	case m.measured <- measurement{m.epoch, m.task, m.want, rate}:
		m.clear()
	default:
	}
}
