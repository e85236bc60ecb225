package slot

import (
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/workers/slot/hygiene"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// Further reasons for which a process is recycled: it ran as many items as its task allows, or got as old.
const (
	recycledItems hygiene.Reason = "items"
	recycledAge   hygiene.Reason = "age"
)

// Recycles are the reasons for which a process is recycled.
func Recycles() []string {
	return []string{string(recycledItems), string(recycledAge), string(hygiene.ForLeak), string(hygiene.ForFull)}
}

// Stats are what a slot has done since it began.
type Stats struct {
	// Processes were started; Items were finished in them, commands included.
	Processes, Items int64
	// Held is what the present process and its descendants hold, in bytes; 0 means unknown.
	Held int64
	// Trims are clean-ups between items, TrimTime what they took, Freed the bytes that they gave back.
	Trims    int64
	TrimTime time.Duration
	Freed    int64
	// Recycled counts processes that were replaced although they could go on, by reason: items, age, leak, full.
	Recycled map[string]int64
	// Residents are how many values the present process keeps for a lease, ResidentBytes the bytes of their arrays.
	Residents     int
	ResidentBytes int64
	// Running is the item that runs; nil where none does.
	Running *Running
}

// Running is an item that runs, or the first of a micro-batch that does.
type Running struct {
	// Index is -1 in a call of a lease.
	Index int64
	Began time.Time
	// Progress is the beginning of the JSON that it reported last.
	Progress string
	// Out is what its process prints, of which what is not yet read is the item's; nil while there is no process.
	Out *process.Output
}

// Stats is what the slot has done so far.
func (s *Slot) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Recycled = maps.Clone(s.stats.Recycled)
	if !s.running.Began.IsZero() {
		running := s.running
		running.Out = s.out
		stats.Running = &running
	}
	if s.watched != nil {
		stats.Held = s.watched.Held()
	}
	return stats
}

func (s *Slot) tally(change func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// runs takes down which item runs, since began; none where that is zero.
func (s *Slot) runs(index int64, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.IsZero() || s.running.Began.IsZero() || s.running.Index != index {
		s.running = Running{Index: index, Began: began}
	}
}

// progressed takes down what the item that runs has reported.
func (s *Slot) progressed(value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running.Progress = text.Excerpt(value)
}

// keep takes down what the process keeps for its lease.
func (s *Slot) keep(m wire.Kept) {
	s.tally(func(st *Stats) { st.Residents, st.ResidentBytes = m.Count, m.Bytes })
}

// recycled counts and logs that a process which could go on is replaced.
func (s *Slot) recycled(p *occupant, why hygiene.Reason, text string) {
	s.tally(func(st *Stats) {
		if st.Recycled == nil {
			st.Recycled = map[string]int64{}
		}
		st.Recycled[string(why)]++
	})
	s.log.Info("task process recycled", zap.String(logkey.Task, p.Task.Name), zap.Int(logkey.PID, p.PID),
		zap.String(logkey.Reason, string(why)), zap.String(logkey.Why, text))
}
