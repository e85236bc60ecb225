package memory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/workers/slot"
	"github.com/gpumux/gpumux/workers/slot/launch"
)

const (
	// probeBudget is a probe's budget, probeTakes what it takes, probeHolds for how long.
	probeBudget = 24 << 20
	probeTakes  = 48 << 20
	probeHolds  = 3 * time.Second
	probeLimit  = 15 * time.Second
)

// Prove finds out what keeps each pool within its budget, and tells the operator. On the CPU it tries each means: a throw-away process
// takes more than a small budget. A means that does not end it counts as broken. Run must run beside it.
func (e *Enforcer) Prove(ctx context.Context) { e.report(e.prove(ctx)) }

// prove has the error of each means on the CPU that did not end its process.
func (e *Enforcer) prove(ctx context.Context) map[string]error {
	broken := map[string]error{}
	if !e.budgetsOnCPU() {
		return broken
	}
	tries := map[string]slot.Options{meansWatch: {Watch: e.watch}}
	if e.cgroups != nil {
		tries[meansCgroup] = slot.Options{Cgroups: e.cgroups}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	for name, o := range tries {
		all.Go(func() {
			err := probe(ctx, o, probeLimit)
			if errors.Is(err, errUntried) {
				e.log.Warn("whether a budget is enforced by "+name+" is not known", zap.Error(err))
			} else if err != nil {
				mu.Lock()
				defer mu.Unlock()
				broken[name] = err
			}
		})
	}
	all.Wait()
	for name, err := range broken {
		e.log.Warn("a budget is not enforced by "+name+", which was tried with a throw-away process", zap.Error(err))
	}
	return broken
}

// errUntried says that a probe took no memory, so it proves nothing.
var errUntried = errors.New("the throw-away process, which needs sh, head, tail and wc, took no memory")

// probe lets a process in a slot of its own exceed its budget, and says why it was not ended.
func probe(ctx context.Context, o slot.Options, limit time.Duration) error {
	o.Name, o.Device, o.Memory, o.Grace = "probe", gpu.CPU, probeBudget, time.Second
	s := slot.New(o)
	defer s.Stop(context.WithoutCancel(ctx))
	// tail holds a whole line in memory until it ends.
	task := launch.Task{Name: "probe", Text: true, Command: []string{"/bin/sh", "-c",
		fmt.Sprintf(`n=$({ head -c %d /dev/zero; sleep %d; } | tail -n 1 | wc -c); [ "${n:-0}" -eq %[1]d ] || exit 9`,
			probeTakes, int(probeHolds.Seconds()))}}
	var failed *gpumux.Fault
	err := s.Run(ctx, task, calls.Call{Timeout: limit, Items: oneItem, Done: func(d calls.Done) { failed = d.Fault }})
	var fault *gpumux.Fault
	switch {
	case errors.As(err, &fault) && fault.Kind == gpumux.Budget:
		return nil
	case errors.As(err, &fault) && fault.Kind == gpumux.Timeout:
		// The machine is too slow; with all its memory the process would have ended by itself.
		return fmt.Errorf("%w within %s: %w", errUntried, limit, fault)
	case failed != nil:
		return fmt.Errorf("%w: %w", errUntried, failed)
	case err != nil:
		return fmt.Errorf("the process should have been ended for its memory: %w", err)
	}
	return fmt.Errorf("a process took %s of a budget of %s and was not ended within %s", gpumux.Size(probeTakes), gpumux.Size(probeBudget), probeHolds)
}

var oneItem iter.Seq2[calls.Item, error] = func(yield func(calls.Item, error) bool) { yield(calls.Item{Value: []byte("null")}, nil) }
