package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

const (
	// hold is how long workloads.py stays in a slot with a warm-up item.
	hold = 200 * time.Millisecond
	// warmings bounds the maps that warm a pool up; each gives every slot that is still cold a chance.
	warmings = 5
)

// seat is a pool of a measured worker.
type seat struct {
	pool    string
	sharing string
	// slots are those of each device.
	slots   int
	on      *target
	devices []string
	// fresh says that fresh processes are measured there too.
	fresh bool
}

// clients is how many slots there are.
func (s seat) clients() int { return s.slots * len(s.devices) }

// String is "2 clients of default".
func (s seat) String() string {
	text := plural(s.clients(), "client") + " of " + s.sharing
	if !s.on.gpu() {
		text += " on the CPU"
	}
	return text
}

// task is the name of the workload for a worker whose pools are on different devices.
func (s seat) task(w workload) string { return w.name + "-" + s.pool }

// served is a worker that serves one workload.
type served struct {
	b       *bench
	w       workload
	starter *starter.Starter
	worker  *workers.Worker
}

// serve starts a worker with these pools for one workload.
func (b *bench) serve(ctx context.Context, w workload, seats []seat) (*served, error) {
	c := config.Config{Store: b.storeURL, Dir: b.o.Folder, Tasks: map[string]config.Task{}}
	for _, s := range seats {
		env := frameworkEnv()
		maps.Copy(env, w.env(s.on.probe.Framework, max(b.most(), cpuSlots())))
		task := config.Task{Python: b.task + ":" + w.name, Interpreter: b.interpreter, Env: env}
		if _, set := os.LookupEnv("PYTHONPATH"); set {
			task.PassEnv = []string{"PYTHONPATH"}
		}
		c.Tasks[s.task(w)] = task
		c.Pools = append(c.Pools, config.Pool{
			Name: s.pool, Devices: s.devices, Sharing: s.sharing, Slots: config.Slots(s.slots), Memory: w.memory,
		})
	}
	worker, err := workers.New(c, workers.Options{
		Client: b.o.Client, Inventory: b.inventory, Version: b.o.Version, StopTimeout: time.Second, Log: b.o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the worker: %w", err)
	}
	s := &served{b: b, w: w, worker: worker, starter: &starter.Starter{Client: b.o.Client, Namespace: b.o.Namespace, Store: b.store,
		Converter: b.o.Converter}}
	if err := worker.Start(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(fmt.Errorf("start the worker: %w", err), s.stop())
	}
	return s, nil
}

// selector names the device in a pool.
func (t *target) selector() string {
	if t.gpu() {
		return t.device.UUID
	}
	return "cpu"
}

// stop ends the worker and every task process; a caller in a hurry leaves them to die with this process.
func (s *served) stop() error { return s.worker.Stop(s.b.o.Hard) }

// outcome is a map that has ended.
type outcome struct {
	summary gpumux.Summary
	stamps  []stamp
	total   time.Duration
}

// run maps the workload over a range, waits for the merged results and reads them. When ctx ends the map is cancelled.
func (s *served) run(ctx context.Context, at seat, in gpumux.MapInput) (outcome, error) {
	began := time.Now()
	summary, err := s.wait(ctx, at, in)
	out := outcome{summary: summary, total: time.Since(began)}
	if err != nil {
		return out, err
	}
	err = s.values(ctx, summary, func(value json.RawMessage) error {
		var one stamp
		err := json.Unmarshal(value, &one)
		out.stamps = append(out.stamps, one)
		return err
	})
	return out, err
}

// wait runs a map to its end.
func (s *served) wait(ctx context.Context, at seat, in gpumux.MapInput) (gpumux.Summary, error) {
	in.Task, in.Ladder = at.task(s.w), []string{at.pool}
	h, err := s.starter.Start(ctx, starter.Map{
		ID: "bench-" + at.pool + "-" + strings.ToLower(rand.Text()[:10]), Input: in, Label: "gpumux bench",
	})
	if err != nil {
		return gpumux.Summary{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-s.worker.Failed():
			cancel(fmt.Errorf("the worker stopped: %w", err))
		case <-ctx.Done():
		}
	}()
	summary, err := h.Wait(ctx)
	if err == nil {
		return summary, nil
	}
	if ctx.Err() != nil {
		canceling, done := context.WithTimeout(s.b.o.Hard, 5*time.Second)
		defer done()
		_ = h.Cancel(canceling) // the reason to leave is already known
	}
	return summary, fmt.Errorf("map %s in pool %s: %w", in.Task, at.pool, err)
}

// values reads the results of a map; faults other than those of memory and death are no measurement but a mistake.
func (s *served) values(ctx context.Context, summary gpumux.Summary, take func(json.RawMessage) error) error {
	for result, err := range s.starter.ResultsOf(ctx, summary) {
		switch {
		case err != nil:
			return err
		case result.Fault == nil:
			if err := take(result.Value); err != nil {
				return fmt.Errorf("read result %d of %s: %w", result.Index, summary.Task, err)
			}
		case result.Fault.Kind == gpumux.TaskError || result.Fault.Kind == gpumux.BadInput:
			return fmt.Errorf("item %d of %s: %w", result.Index, summary.Task, result.Fault)
		}
	}
	return nil
}

// readEnvironments asks slots for their environment, which bare processes are to have too: other threads or libraries would make the
// comparison one of environments.
func (b *bench) readEnvironments(ctx context.Context) (err error) {
	b.o.Say("looking at the environment of slots")
	w := workload{name: "surroundings"}
	var seats []seat
	for _, clients := range b.o.Clients {
		seats = append(seats, b.slicedSeat(clients))
	}
	worker, err := b.serve(ctx, w, seats)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.stop()) }()
	b.around = map[int]map[string]string{}
	for _, at := range seats {
		summary, err := worker.wait(ctx, at, gpumux.MapInput{Range: &gpumux.Range{End: 1}})
		if err != nil {
			return err
		}
		err = worker.values(ctx, summary, func(value json.RawMessage) error {
			var env map[string]string
			err := json.Unmarshal(value, &env)
			b.around[at.slots] = env
			return err
		})
		if err != nil {
			return err
		}
		if b.around[at.slots] == nil {
			return fmt.Errorf("a slot of pool %s did not tell its environment: %s", at.pool, faultsText(summary.Faults))
		}
	}
	return nil
}

// warm gives every slot an item, and returns how long the first map took beyond the time that its items hold their slots.
func (s *served) warm(ctx context.Context, at seat, mode gpumux.Mode) (time.Duration, error) {
	var start time.Duration
	warmed := map[string]bool{}
	for round := range warmings {
		out, err := s.run(ctx, at, gpumux.MapInput{
			Range: &gpumux.Range{Start: -int64(at.clients())}, Mode: mode, Chunk: 1, Window: at.clients(),
		})
		if err != nil {
			return 0, err
		}
		if round == 0 {
			start = max(0, out.total-hold)
		}
		for _, one := range out.stamps {
			warmed[one.Slot] = true
		}
		if len(warmed) >= at.clients() || mode == gpumux.Fresh {
			return start, nil
		}
	}
	return start, fmt.Errorf("only %d of %d slots of pool %s took an item in %d maps", len(warmed), at.clients(), at.pool, warmings)
}
