package slot

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	// fenceGrain is by how much the warden may be early: its clock counts hundredths of a second.
	fenceGrain = 100 * time.Millisecond
	// wardenLook is how often a warden is looked at, wardenSilence how many looks in a row it may be silent while it has a deadline.
	// They are counted and not timed, since this program may stand still itself.
	wardenLook    = time.Second
	wardenSilence = 4
	// wardenSettled is the age from which the end of a warden is not counted together with the ends before.
	wardenSettled = time.Minute
	// wardenFree is how many in a row are replaced at once; after that pauses grow, up to wardenPause.
	wardenFree  = 3
	wardenPause = 30 * time.Second
)

// keeper sees to it that a fence has a warden which lives and knows the deadline.
type keeper struct {
	token  string
	number uint64
	log    *zap.Logger

	// all counts the wardens that ever were lost. Who reads it must not wait for one that is slow.
	all atomic.Int64
	// lacking reports that there is none although there should be, which was told.
	lacking atomic.Bool

	mu  sync.Mutex // guards what follows
	now *warden    // nil where there is none
	// due is the deadline in force, 0 for none.
	due time.Duration
	// ends counts the wardens that were lost in a row; why is what became of the last one. No other is started before next, when
	// the timer tries to.
	ends   int
	why    string
	next   time.Time
	timer  *time.Timer
	closed bool
}

func (k *keeper) open(token string, number uint64, log *zap.Logger) {
	k.token, k.number, k.log = token, number, log
}

func (k *keeper) lost() int64 { return k.all.Load() }

func (k *keeper) lacks() bool { return k.lacking.Load() }

// ready starts a warden where there is none.
func (k *keeper) ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.warden()
	return err
}

// hold sets the deadline, or takes it back.
func (k *keeper) hold(due time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	for range 2 { // one that has just ended may not be known to have
		var w *warden
		if w, err = k.warden(); err != nil {
			// Nothing is ended by a deadline that has passed meanwhile; the next warden gets this one.
			k.due = due
			return err
		}
		if err = k.tell(w, due); err == nil {
			return nil
		}
		k.lose(w, err.Error())
	}
	return err
}

// tell tells a warden the deadline; the caller holds the lock.
func (k *keeper) tell(w *warden, due time.Duration) error {
	if k.due > 0 && Uptime() >= k.due-fenceGrain {
		if err := w.line.settle(); err != nil {
			return err
		}
		k.due = 0
	}
	if due == k.due {
		return nil
	}
	// What could not be told is still to be: until then the warden goes by the deadline before.
	if err := w.line.set(due, k.due == 0); err != nil {
		return err
	}
	k.due = due
	return nil
}

// warden is the one that lives; what could not be started is tried again. The caller holds the lock.
func (k *keeper) warden() (*warden, error) {
	switch {
	case k.now != nil:
		return k.now, nil
	case k.closed:
		return nil, errors.New("the fence of this slot's worker is closed; make a new worker")
	}
	if left := time.Until(k.next); left > 0 {
		return nil, &unguarded{fmt.Sprintf("the warden, which ends the task processes of a worker that was killed or stopped, was lost "+
			"%d times in a row (%s); nothing starts without one, and the next one does in %s",
			k.ends, k.why, max(left, time.Second).Round(time.Second))}
	}
	w, err := startWarden(k.token, k.number)
	if err != nil {
		return nil, err
	}
	// It knows by its marks whatever was started before it.
	if k.due > 0 {
		if err := w.line.set(k.due, true); err != nil {
			w.end()
			return nil, err
		}
	}
	k.now = w
	go k.watch(w)
	if k.lacking.Swap(false) {
		k.log.Info("this worker has a warden again")
	}
	return w, nil
}

// watch follows a warden until it is no longer the one.
func (k *keeper) watch(w *warden) {
	tick := time.NewTicker(wardenLook)
	defer tick.Stop()
	silent, heard := 0, int64(0)
	lose := func(why string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.lose(w, why)
	}
	for {
		select {
		case why := <-w.failed:
			lose(why)
			return
		case <-tick.C:
			if w.halted() {
				lose("something holds it, such as a debugger")
				return
			}
			if beats := w.line.beats.Load(); beats != heard || !k.expects(w) {
				silent, heard = 0, beats
			} else if silent++; silent >= wardenSilence {
				lose("it did not answer")
				return
			}
		}
	}
}

// expects says that a warden counts down to a deadline that is still to come.
func (k *keeper) expects(w *warden) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now == w && k.due > 0 && Uptime() < k.due-fenceGrain
}

// lose ends a warden that is of no use and starts another; the caller holds the lock.
func (k *keeper) lose(w *warden, why string) {
	if k.now != w || k.closed {
		return
	}
	k.now = nil
	w.end()
	if time.Since(w.started) > wardenSettled {
		k.ends = 0
	}
	k.ends++
	k.all.Add(1)
	k.why = why
	if more := k.ends - wardenFree; more > 0 {
		k.next = time.Now().Add(min(wardenPause, time.Second<<min(more-1, 10)))
	}
	began := time.Now()
	if _, err := k.warden(); err != nil {
		k.log.Error("this worker has lost its warden and has no other: what runs goes on, and would run on if the worker were stopped "+
			"now; nothing starts before there is one", logWhy.text(why), zap.Error(err), logAdvice.text(unguardedHint))
		k.lacking.Store(true)
		k.later()
		return
	}
	k.log.Warn("this worker has lost its warden, which ends the task processes of a worker that was killed or stopped; another took "+
		"its place, and what runs goes on", logWhy.text(why), logTook.text(time.Since(began).Round(time.Millisecond).String()))
}

// later tries to start a warden when the time has come; the caller holds the lock.
func (k *keeper) later() {
	k.timer = time.AfterFunc(max(time.Second, time.Until(k.next)), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.now != nil || k.closed {
			return
		}
		if _, err := k.warden(); err != nil {
			k.later()
		}
	})
}

func (k *keeper) close() {
	k.mu.Lock()
	w := k.now
	k.now, k.closed = nil, true
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	if w != nil {
		w.end()
		w.done.Wait()
	}
}
