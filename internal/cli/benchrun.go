package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

type benchStage struct {
	workload string
	way      way
	sharing  string
	clients  int
}

func (b *bench) runStage(ctx context.Context, s benchStage) error {
	row := benchRow{Workload: s.workload, Size: b.size(s.workload), Way: s.way, Sharing: s.sharing, Clients: s.clients}
	b.app.console.Say("%s: %s %s %d", row.label(), s.way, s.sharing, s.clients)
	pool, err := b.serve(ctx, s)
	if err != nil {
		if ctx.Err() != nil || s.sharing == benchSharings[0] {
			return err
		}
		b.note("sharing %s is not measured with %d clients: %v", s.sharing, s.clients, err)
		return nil
	}
	defer pool.session.Close(b.app.hard)
	ctx = pool.session.Context()
	env, err := pool.warm(ctx)
	if err != nil {
		return err
	}
	processes, err := b.startBare(ctx, s, env)
	if err != nil {
		return err
	}
	defer processes.close()
	bare := &lane{clients: s.clients, maxItems: maxBareItems, run: processes.piece}
	slots := &lane{clients: s.clients, maxItems: gpumux.MaxChunk, run: pool.piece}
	if err := takeTurns(ctx, []*lane{bare, slots}, b.limit); err != nil {
		return err
	}
	if s.sharing == benchSharings[0] && s.way == wayPersistent {
		beside := row
		beside.Way, beside.Sharing = wayBare, ""
		b.report.Rows = append(b.report.Rows, bare.result(beside))
	}
	row = slots.result(row)
	row.OfBare = slots.share(bare)
	b.report.Rows = append(b.report.Rows, row)
	return nil
}

// size is the rows and columns of the matrices of a workload, or 0. A GPU would be done
// with the CPU's matrices before a call is.
func (b *bench) size(workload string) int {
	size := map[string]int{"heavy": 2048, "medium": 1024}[workload]
	if b.onGPU() {
		size *= 4
	}
	return size
}

// command makes a Python process that ends with ctx, its children included.
func (b *bench) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.python, append([]string{b.file}, args...)...)
	cmd.Env, cmd.SysProcAttr = env, &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	return cmd
}

// bareProcesses are plain interpreters side by side that call a workload's function in a
// loop.
type bareProcesses struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
}

// startBare returns when all processes are warm. They get the environment of a slot:
// other threads or libraries would make the comparison one of environments.
func (b *bench) startBare(ctx context.Context, s benchStage, slot map[string]string) (*bareProcesses, error) {
	var env []string
	for _, part := range []map[string]string{slot, b.env(s.workload)} {
		for name, value := range part {
			env = append(env, name+"="+value)
		}
	}
	p := &bareProcesses{cmd: b.command(ctx, env, "bare", s.workload, strconv.Itoa(s.clients))}
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
		return nil, fmt.Errorf("start bare processes: %w", err)
	}
	_, err = p.piece(ctx, 1)
	return p, err
}

func (p *bareProcesses) piece(ctx context.Context, items int) (benchSample, error) {
	var processes []struct{ Ended []int64 }
	_, err := fmt.Fprintln(p.in, items)
	if err == nil {
		err = p.out.Decode(&processes)
	}
	if err != nil {
		p.close()
		if ctx.Err() != nil {
			return benchSample{}, context.Cause(ctx)
		}
		return benchSample{}, fmt.Errorf("a bare process ended: %s: %s", p.cmd.ProcessState, bytes.TrimSpace(p.stderr.Bytes()))
	}
	var ends [][]int64
	for _, process := range processes {
		ends = append(ends, process.Ended)
	}
	return benchSampleOf(ends, len(ends)), nil
}

func (p *bareProcesses) close() {
	_ = p.in.Close() // the loops end with their input
	_ = p.cmd.Wait()
}

// benchPool is the slots of a stage, of a server and a worker of their own.
type benchPool struct {
	benchStage
	task    string
	session *local.Session
}

func (b *bench) serve(ctx context.Context, s benchStage) (*benchPool, error) {
	env := b.env(s.workload)
	for name, value := range env {
		os.Setenv(name, value)
	}
	pass := append(slices.Collect(maps.Keys(env)), "PYTHONPATH")
	task, err := local.FindTask(b.file+":"+s.workload, local.TaskOptions{Python: b.python, PassEnv: pass})
	if err != nil {
		return nil, err
	}
	o := b.app.localOptions(true)
	o.Task, o.Headless = task, true
	o.Pools = []config.Pool{{Name: "bench", Devices: []string{b.device.UUID}, Sharing: s.sharing, Slots: config.Slots(s.clients)}}
	session, err := local.Open(ctx, o)
	return &benchPool{s, task.Name, session}, err
}

// env is the same for slots and bare processes. JAX would otherwise take most of a GPU at
// its start.
func (b *bench) env(workload string) map[string]string {
	framework := b.framework
	if workload == "light" {
		framework = "" // it calculates nothing
	}
	return map[string]string{"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1",
		"BENCH_FRAMEWORK": framework, "BENCH_SIZE": strconv.Itoa(b.size(workload))}
}

// run maps the workload over a range. It returns when the items of each slot ended, in
// nanoseconds since 1970, and the environment of a slot, which items that warm it up
// have.
func (p *benchPool) run(ctx context.Context, items gpumux.Range, chunk int) (ends map[string][]int64, env map[string]string, err error) {
	in := gpumux.MapInput{Task: p.task, Ladder: []string{"bench"}, Range: &items, Chunk: chunk, Window: p.clients}
	if p.way == wayFresh {
		in.Mode = gpumux.ModeFresh
	}
	h, err := p.session.Start(ctx, starter.Map{ID: "bench-" + strings.ToLower(rand.Text()[:10]), Input: in, Label: "gpumux bench"})
	if err == nil {
		_, err = h.Wait(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", p.workload, err)
	}
	ends = map[string][]int64{}
	for result, err := range h.Results(ctx, starter.ReadOptions{}) {
		var stamp struct {
			Slot  string
			Ended int64
			Env   map[string]string
		}
		if err == nil && result.Fault != nil {
			err = result.Fault
		}
		if err == nil {
			err = json.Unmarshal(result.Value, &stamp)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("item %d of %s: %w", result.Index, p.workload, err)
		}
		ends[stamp.Slot], env = append(ends[stamp.Slot], stamp.Ended), stamp.Env
	}
	return ends, env, nil
}

func (p *benchPool) piece(ctx context.Context, items int) (benchSample, error) {
	ends, _, err := p.run(ctx, gpumux.Range{End: int64(items * p.clients)}, items)
	return benchSampleOf(slices.Collect(maps.Values(ends)), p.clients), err
}

func (p *benchPool) warm(ctx context.Context) (env map[string]string, err error) {
	warmed := map[string][]int64{}
	for range 5 { // each map may miss some of the slots
		ends, env, err := p.run(ctx, gpumux.Range{Start: -int64(p.clients)}, 1)
		if err != nil {
			return nil, err
		}
		if maps.Copy(warmed, ends); len(warmed) == p.clients || p.way == wayFresh {
			return env, nil
		}
	}
	return nil, fmt.Errorf("only %d of %d slots took an item of %s", len(warmed), p.clients, p.workload)
}
