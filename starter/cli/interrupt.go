package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruptible is the context that the first signal ends with errInterrupted; the second ends a.hard. Its goroutine ends
// with the returned function.
func (a *app) interruptible() (context.Context, func()) {
	signals := a.Signals
	stop := func() {}
	if signals == nil {
		own := make(chan os.Signal, 2)
		signal.Notify(own, os.Interrupt, syscall.SIGTERM)
		signals, stop = own, func() { signal.Stop(own) }
	}
	ctx, interrupt := context.WithCancelCause(context.Background())
	hard, kill := context.WithCancelCause(context.Background())
	a.hard = hard
	over := make(chan struct{})
	go func() {
		for _, end := range []context.CancelCauseFunc{interrupt, kill} {
			select {
			case <-signals:
				end(errInterrupted)
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		stop()
		close(over)
		interrupt(nil)
		kill(nil)
	}
}
