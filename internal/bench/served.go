package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

const (
	// pool is the name of the pool that is measured.
	pool = "bench"
	// warmings bounds the maps that warm a pool up; each may miss some of its slots.
	warmings = 5
)

type served struct {
	*bench
	workload string
	at       seat
	worker   *workers.Worker
}

func (b *bench) serve(ctx context.Context, workload string, at seat) (*served, error) {
	env := b.env(workload, at.on.Framework)
	maps.Copy(env, frameworkEnv)
	task := config.Task{Python: b.task() + ":" + workload, Interpreter: b.Python, Env: env}
	if _, set := os.LookupEnv("PYTHONPATH"); set {
		task.PassEnv = []string{"PYTHONPATH"}
	}
	worker, err := workers.New(config.Config{
		Store: b.storeURL, Dir: b.Folder, Tasks: map[string]config.Task{workload: task}, Pools: []config.Pool{{
			Name: pool, Devices: at.devices, Sharing: sharing.Mode(at.sharing), Slots: config.Slots(at.slots), Memory: b.budget(workload),
		}},
	}, workers.Options{
		Client: b.Starter.Client, Inventory: b.inventory, Version: b.Version, StopTimeout: time.Second, Log: workers.Zap(b.Log),
	})
	if err != nil {
		return nil, fmt.Errorf("set up the worker: %w", err)
	}
	s := &served{b, workload, at, worker}
	if err := worker.Start(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(fmt.Errorf("start the worker: %w", err), s.stop())
	}
	return s, nil
}

// stop ends the worker and every task process; a caller in a hurry leaves them to die
// with this process.
func (s *served) stop() error { return s.worker.Stop(s.Hard) }

type outcome struct {
	summary gpumux.Summary
	stamps  []stamp
	total   time.Duration
}

// run maps the workload over a range, waits for the merged results and reads them. Faults
// of memory and death are measurements; others are mistakes. When ctx ends, or the
// worker, the map is cancelled.
func (s *served) run(ctx context.Context, in gpumux.MapInput) (out outcome, err error) {
	in.Task, in.Ladder = s.workload, []string{pool}
	if s.at.way == Fresh {
		in.Mode = gpumux.ModeFresh
	}
	began := time.Now()
	h, err := s.Starter.Start(ctx, starter.Map{ID: "bench-" + strings.ToLower(rand.Text()[:10]), Input: in, Label: "gpumux bench"})
	if err != nil {
		return out, err
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
	if out.summary, err = h.Wait(ctx); err != nil {
		if ctx.Err() != nil {
			canceling, done := context.WithTimeout(s.Hard, 5*time.Second)
			defer done()
			_ = h.Cancel(canceling) // the reason to leave is already known
		}
		return out, fmt.Errorf("map %s: %w", s.workload, err)
	}
	out.total = time.Since(began)
	for result, err := range h.Results(ctx, starter.ReadOptions{}) {
		var one stamp
		switch {
		case err != nil:
			return out, err
		case result.Fault == nil:
			if err := json.Unmarshal(result.Value, &one); err != nil {
				return out, fmt.Errorf("read result %d of %s: %w", result.Index, s.workload, err)
			}
			out.stamps = append(out.stamps, one)
		case result.Fault.Kind == gpumux.FaultTaskError || result.Fault.Kind == gpumux.FaultBadInput:
			return out, fmt.Errorf("item %d of %s: %w", result.Index, s.workload, result.Fault)
		}
	}
	return out, nil
}

func (s *served) piece(ctx context.Context, items int) (sample, error) {
	n := s.at.clients()
	out, err := s.run(ctx, gpumux.MapInput{Range: &gpumux.Range{End: int64(items * n)}, Chunk: items, Window: n})
	return sampleOf(out.stamps, n, out.total), err
}

// warm gives every slot an item, and returns the environment of a slot.
func (s *served) warm(ctx context.Context) (env map[string]string, err error) {
	n := s.at.clients()
	warmed := map[string]bool{}
	var out outcome
	for range warmings {
		if out, err = s.run(ctx, gpumux.MapInput{Range: &gpumux.Range{Start: -int64(n)}, Chunk: 1, Window: n}); err != nil {
			return nil, err
		}
		for _, one := range out.stamps {
			warmed[one.Slot], env = true, one.Env
		}
		if len(warmed) >= n || len(warmed) > 0 && s.at.way == Fresh {
			return env, nil
		}
	}
	return nil, fmt.Errorf("only %d of %d slots took an item of %s in %d maps, the last with %s", len(warmed), n, s.workload, warmings,
		outcomeText(Row{Items: int(out.summary.Items), Faults: out.summary.Faults}))
}

// bare is plain interpreters side by side that call one workload's function when told to.
type bare struct{ procs []*bareProcess }

type bareProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
}

// startBare starts n processes on the measured device and returns when all are warm. The
// caller closes it, also after an error.
func (b *bench) startBare(ctx context.Context, workload string, n int) (*bare, error) {
	p := &bare{}
	env := environ(b.around[n], b.env(workload, b.on.Framework))
	for i := range n {
		one := &bareProcess{cmd: b.command(ctx, env, "loop", workload, strconv.Itoa(i), strconv.Itoa(n))}
		one.cmd.Stderr = &one.stderr
		out, err := one.cmd.StdoutPipe()
		if err == nil {
			one.out = json.NewDecoder(out)
			one.in, err = one.cmd.StdinPipe()
		}
		if err == nil {
			err = one.cmd.Start()
		}
		if err != nil {
			return p, fmt.Errorf("start a bare process: %w", err)
		}
		p.procs = append(p.procs, one)
	}
	for _, one := range p.procs {
		var ready string
		if err := one.out.Decode(&ready); err != nil {
			return p, one.died(ctx, err)
		}
	}
	return p, nil
}

func (p *bare) piece(ctx context.Context, items int) (sample, error) {
	for _, one := range p.procs {
		if _, err := fmt.Fprintln(one.in, items); err != nil {
			return sample{}, one.died(ctx, err)
		}
	}
	errs := make([]error, len(p.procs))
	stamps := make([][]stamp, len(p.procs))
	var all sync.WaitGroup
	for i, one := range p.procs {
		all.Go(func() {
			var got struct{ Began, Ended []int64 }
			if err := one.out.Decode(&got); err != nil {
				errs[i] = one.died(ctx, err)
				return
			}
			for n := range got.Ended {
				stamps[i] = append(stamps[i], stamp{Slot: strconv.Itoa(i), Began: got.Began[n], Ended: got.Ended[n]})
			}
		})
	}
	all.Wait()
	return sampleOf(slices.Concat(stamps...), len(p.procs), 0), errors.Join(errs...)
}

func (p *bare) close() {
	for _, one := range p.procs {
		_ = one.in.Close() // the loop ends with its input
	}
	for _, one := range p.procs {
		_ = one.cmd.Wait()
	}
}

func (p *bareProcess) died(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_ = p.in.Close()
	if ended := p.cmd.Wait(); ended != nil {
		err = ended
	}
	return fmt.Errorf("a bare process ended: %w: %s", err, lastLine(p.stderr.String()))
}
