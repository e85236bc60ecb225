package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

//go:embed workloads.py
var python string

func (b *Bench) file() string { return filepath.Join(b.Folder, "workloads.py") }

// size is the rows and columns of the matrices of a workload, or 0. A GPU would be done
// with the CPU's matrices before a call is.
func (b *Bench) size(workload string) int {
	size := map[string]int{"heavy": 2048, "medium": 1024}[workload]
	if b.device.Kind != gpu.KindCPU {
		size *= 4
	}
	return size
}

// env is the same for slots and bare processes. JAX would otherwise take most of a GPU at
// its start.
func (b *Bench) env(workload string) map[string]string {
	framework := b.framework
	if workload == "light" {
		framework = "" // it calculates nothing
	}
	return map[string]string{"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1",
		"BENCH_FRAMEWORK": framework, "BENCH_SIZE": strconv.Itoa(b.size(workload))}
}

// probed is what `workloads.py probe` says of the interpreter.
type probed struct {
	// Interpreter is the Python itself, where --python may name a version manager's
	// script, which would cost time at every start.
	Interpreter, Python string
	Framework, Version  string
	Name                string // the framework's for the device
	GPU                 bool   // reached by the framework
	Lacking             string // frameworks that cannot be used, and why
}

// probe asks the interpreter what it has on the device, before a slot's environment is
// known.
func (b *Bench) probe(ctx context.Context) (found probed, err error) {
	env := map[string]string{"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
	if b.device.Kind != gpu.KindCPU {
		env = map[string]string{"CUDA_VISIBLE_DEVICES": b.device.UUID, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
	}
	maps.Copy(env, b.env(""))
	env["BENCH_FRAMEWORK"] = b.Framework
	out, err := b.command(ctx, append(os.Environ(), environ(env)...), "probe").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return found, fmt.Errorf("%s %s probe: %w: %s", b.Python, b.file(), err, lastLine(string(exit.Stderr)))
	} else if err != nil {
		return found, fmt.Errorf("%s does not start: %w; install Python 3, or give another --python", b.Python, err)
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return found, fmt.Errorf("read what %s probe printed: %w", b.file(), err)
	}
	return found, nil
}

// command makes a Python process that ends with ctx, its children included.
func (b *Bench) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.Python, append([]string{b.file()}, args...)...)
	cmd.Env = env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	return cmd
}

// environ makes the environment of a process; a later part overrides an earlier one.
func environ(parts ...map[string]string) (env []string) {
	for _, part := range parts {
		for name, value := range part {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// pool is the name of the pool that is measured.
const pool = "bench"

// served is the slots of a stage.
type served struct {
	*Bench
	stage
	worker *workers.Worker
}

func (b *Bench) serve(ctx context.Context, s stage) (*served, error) {
	task := config.Task{Python: b.file() + ":" + s.workload, Interpreter: b.Python, Env: b.env(s.workload)}
	if _, set := os.LookupEnv("PYTHONPATH"); set {
		task.PassEnv = []string{"PYTHONPATH"}
	}
	worker, err := workers.New(config.Config{
		Store: b.storeURL, Dir: b.Folder, Tasks: map[string]config.Task{s.workload: task},
		Pools: []config.Pool{{Name: pool, Devices: s.devices, Sharing: sharing.Mode(s.sharing), Slots: config.Slots(s.slots)}},
	}, workers.Options{
		Client: b.Starter.Client, Dedicated: true, Inventory: b.inventory, Version: b.Version, StopTimeout: time.Second, Log: workers.Zap(b.Log),
	})
	if err != nil {
		return nil, fmt.Errorf("set up the worker: %w", err)
	}
	out := &served{b, s, worker}
	if err := worker.Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the worker: %w", err), out.stop())
	}
	return out, nil
}

// stop ends the worker and every task process; a caller in a hurry leaves them to die
// with this process.
func (s *served) stop() error { return s.worker.Stop(s.Hard) }

// run maps the workload over a range, and reads when each item began and ended.
func (s *served) run(ctx context.Context, items gpumux.Range, chunk int) (stamps []stamp, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-s.worker.Failed():
			cancel(fmt.Errorf("the worker stopped: %w", err))
		case <-ctx.Done():
		}
	}()
	in := gpumux.MapInput{Task: s.workload, Ladder: []string{pool}, Range: &items, Chunk: chunk, Window: s.clients()}
	if s.way == Fresh {
		in.Mode = gpumux.ModeFresh
	}
	h, err := s.Starter.Start(ctx, starter.Map{ID: "bench-" + strings.ToLower(rand.Text()[:10]), Input: in, Label: "gpumux bench"})
	if err == nil {
		_, err = h.Wait(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", s.workload, err)
	}
	for result, err := range h.Results(ctx, starter.ReadOptions{}) {
		var one stamp
		if err == nil && result.Fault != nil {
			err = result.Fault
		}
		if err == nil {
			err = json.Unmarshal(result.Value, &one)
		}
		if err != nil {
			return nil, fmt.Errorf("item %d of %s: %w", result.Index, s.workload, err)
		}
		stamps = append(stamps, one)
	}
	return stamps, nil
}

func (s *served) piece(ctx context.Context, items int) (sample, error) {
	stamps, err := s.run(ctx, gpumux.Range{End: int64(items * s.clients())}, items)
	return sampleOf(stamps, s.clients()), err
}

// warm gives every slot an item, and returns the environment of a slot.
func (s *served) warm(ctx context.Context) (env map[string]string, err error) {
	warmed := map[string]bool{}
	for range 5 { // each map may miss some of the slots
		stamps, err := s.run(ctx, gpumux.Range{Start: -int64(s.clients())}, 1)
		if err != nil {
			return nil, err
		}
		for _, one := range stamps {
			warmed[one.Slot], env = true, one.Env
		}
		if len(warmed) == s.clients() || s.way == Fresh {
			return env, nil
		}
	}
	return nil, fmt.Errorf("only %d of %d slots took an item of %s", len(warmed), s.clients(), s.workload)
}

// bare is plain interpreters side by side that call a workload's function in a loop.
type bare []*bareProcess

type bareProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
}

// startBare starts processes on the measured device and returns when all are warm. The
// caller closes it, also after an error.
func (b *Bench) startBare(ctx context.Context, workload string, clients int) (all bare, err error) {
	env := environ(b.environs[clients], b.env(workload))
	for i := range clients {
		p := &bareProcess{cmd: b.command(ctx, env, "loop", workload, strconv.Itoa(i), strconv.Itoa(clients))}
		p.cmd.Stderr = &p.stderr
		out, err := p.cmd.StdoutPipe()
		if err == nil {
			p.out = json.NewDecoder(out)
			p.in, err = p.cmd.StdinPipe()
		}
		if err == nil {
			err = p.cmd.Start()
		}
		if err != nil {
			return all, fmt.Errorf("start a bare process: %w", err)
		}
		all = append(all, p)
	}
	for _, p := range all {
		var ready string
		if err := p.out.Decode(&ready); err != nil {
			return all, p.died(ctx, err)
		}
	}
	return all, nil
}

func (all bare) piece(ctx context.Context, items int) (sample, error) {
	stamps := make([][]stamp, len(all))
	var group errgroup.Group
	for i, p := range all {
		group.Go(func() error {
			var got struct{ Began, Ended []int64 }
			_, err := fmt.Fprintln(p.in, items)
			if err == nil {
				err = p.out.Decode(&got)
			}
			if err != nil {
				return p.died(ctx, err)
			}
			for n := range got.Ended {
				stamps[i] = append(stamps[i], stamp{Slot: strconv.Itoa(i), Began: got.Began[n], Ended: got.Ended[n]})
			}
			return nil
		})
	}
	err := group.Wait()
	return sampleOf(slices.Concat(stamps...), len(all)), err
}

func (all bare) close() {
	for _, p := range all {
		_ = p.in.Close() // the loop ends with its input
	}
	for _, p := range all {
		_ = p.cmd.Wait()
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
