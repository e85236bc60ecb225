package slot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/logkey"
)

// own is the owner goroutine: nothing else touches the process.
func (s *Slot) own() {
	defer close(s.gone)
	idle := time.NewTimer(time.Hour)
	for {
		s.lingered()
		var exited chan struct{}
		if s.process != nil {
			exited = s.process.Exited
		}
		select {
		case r := <-s.calls:
			s.serving = &r
			if r.clear {
				s.retire(true, "its memory is wanted")
				s.answer(nil)
				continue
			}
			s.answer(s.serve(r.ctx, r.call))
			idle.Reset(idleAfter)
		case <-idle.C:
			s.idle()
		case <-exited:
			why, memory := s.process.Status.String(), &s.process.Memory
			switch over := memory.Over(); {
			case over.Foreign != "":
				why = fmt.Sprintf("it held %s on %s, which is not its slot's device", gpumux.Size(over.Held), over.Foreign)
			case over.Left > 0:
				why = fmt.Sprintf("the host had %s left, and it held %s, the most of all", gpumux.Size(over.Left), gpumux.Size(over.Held))
			case over.Held > 0:
				why = fmt.Sprintf("it held %s, over the budget of %s", gpumux.Size(over.Held), memory.Budget)
			}
			s.log.Warn("task process ended while it was idle", zap.Int(logkey.PID, s.process.PID), zap.String(logkey.Why, why))
			s.retire(false, "ended while idle")
		case <-s.life.Done():
			s.retire(true, "slot stops")
			if s.scratch != "" {
				os.RemoveAll(s.scratch)
			}
			s.templates.Share(-1)
			if s.owned {
				s.templates.Close()
			}
			s.enter(Stopped, "slot stops")
			s.lingered()
			return
		}
	}
}

// answer ends a request. One whose process lingered was answered then.
func (s *Slot) answer(err error) {
	if s.serving != nil {
		s.serving.reply <- err
	}
	s.serving, s.flow = nil, nil
}

// cut answers the request that is served before its end: nothing is taken from its call any more, nor handed to it.
func (s *Slot) cut(err error) {
	if s.serving == nil {
		return
	}
	if ctx := s.serving.ctx; ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if s.flow != nil {
		s.flow.cut()
	}
	s.serving.reply <- err
	s.serving = nil
}

// errCut ends what is left of a call that was answered early. Nobody sees it.
var errCut = errors.New("the call was answered before its end")

// retire ends the slot's process and returns when nothing of it is left.
func (s *Slot) retire(kindly bool, why string) {
	p := s.process
	if p == nil {
		return
	}
	s.enter(Reclaiming, why)
	p.End(kindly, s.o.Grace)
	began := time.Now()
	if left := p.Memory.AwaitReturn(s.life); left > 0 && s.life.Err() == nil {
		s.log.Warn(fmt.Sprintf("%s of device memory are not back, %s after the end of the task process %d, and the slot goes on without them",
			gpumux.Size(left), time.Since(began).Round(time.Millisecond), p.PID),
			zap.String(logkey.Advice, "see in nvidia-smi who holds it; a driver that hangs says so in the kernel's log (dmesg)"))
	}
	s.removeFolder(p)
	s.process = nil
	s.mu.Lock()
	s.task, s.pid, s.watched, s.out = "", 0, nil, nil
	s.stats.Residents, s.stats.ResidentBytes = 0, 0
	s.mu.Unlock()
	s.enter(Vacant, why)
}

// kill is retire for a process that must not go on: no grace.
func (s *Slot) kill(why string) {
	s.process.Signal(syscall.SIGKILL)
	s.retire(false, why)
}

// endLapsed ends the process when the call's time is over: nothing that it finished may count then.
func (s *Slot) endLapsed(call order) error {
	err := call.lapsed()
	if err != nil {
		s.kill("the call's time was over")
	}
	return err
}

// abandon is retire when a call's context has ended: at once where the call's time is over.
func (s *Slot) abandon(ctx context.Context, why string) {
	if errors.Is(context.Cause(ctx), calls.ErrLapsed) {
		s.kill(why)
		return
	}
	s.retire(false, why)
}
