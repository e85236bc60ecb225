package cli

import (
	"bytes"
	"cmp"
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
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

// benchStage is a workload in a pool. Sharing is default or mps, and empty for bare
// processes; Clients are slots, or those.
type benchStage struct {
	Workload string `json:"workload"`
	Way      string `json:"way"`
	Sharing  string `json:"sharing,omitempty"`
	Clients  int    `json:"clients"`
}

func (b *bench) runStage(ctx context.Context, s benchStage) error {
	row := benchRow{benchStage: s, Size: b.size(s.Workload)}
	b.app.console.Say("%s: %s %s %d", s.Workload, s.Way, s.Sharing, s.Clients)
	pool, err := b.serve(ctx, s)
	if err != nil {
		if ctx.Err() != nil || s.Sharing == benchSharings[0] {
			return err
		}
		b.note("sharing %s is not measured: %s", s.Sharing, report.OneLine(err.Error(), 300))
		return nil
	}
	defer pool.session.Close(b.app.hard)
	ctx = pool.session.Context()
	_, env, err := pool.run(ctx, gpumux.Range{Start: -int64(s.Clients)}, 1) // warms the slots up
	if err != nil {
		return err
	}
	processes, err := b.startBare(ctx, s, env)
	if err != nil {
		return err
	}
	defer processes.close()
	bare := &lane{clients: s.Clients, maxItems: 4 * gpumux.MaxChunk, run: processes.piece}
	slots := &lane{clients: s.Clients, maxItems: gpumux.MaxChunk, run: pool.piece}
	if err := takeTurns(ctx, []*lane{bare, slots}, b.limit); err != nil {
		return err
	}
	if s.Sharing == benchSharings[0] && s.Way == wayPersistent {
		beside := row
		beside.Way, beside.Sharing, beside.Rate, beside.Item = wayBare, "", quartilesOf(bare.rates), quartilesOf(bare.times)
		b.report.Rows = append(b.report.Rows, beside)
	}
	row.Rate, row.Item, row.OfBare = quartilesOf(slots.rates), quartilesOf(slots.times), slots.share(bare)
	b.report.Rows = append(b.report.Rows, row)
	return nil
}

// size is the rows and columns of the matrices of a workload, or 0. A GPU would be done
// with the CPU's matrices before a call is.
func (b *bench) size(workload string) int {
	if b.onGPU() {
		return map[string]int{"heavy": 8192, "medium": 4096}[workload]
	}
	return map[string]int{"heavy": 2048, "medium": 1024}[workload]
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
	maps.Copy(slot, b.env(s.Workload))
	var env []string
	for name, value := range slot {
		env = append(env, name+"="+value)
	}
	p := &bareProcesses{cmd: b.command(ctx, env, "bare", s.Workload, strconv.Itoa(s.Clients))}
	p.cmd.Stderr = &p.stderr
	out, noOut := p.cmd.StdoutPipe()
	in, noIn := p.cmd.StdinPipe()
	if err := errors.Join(noOut, noIn, p.cmd.Start()); err != nil {
		return nil, fmt.Errorf("start bare processes: %w", err)
	}
	p.in, p.out = in, json.NewDecoder(out)
	_, err := p.piece(ctx, 1)
	return p, err
}

func (p *bareProcesses) piece(ctx context.Context, items int) (ends [][]int64, err error) {
	if _, err = fmt.Fprintln(p.in, items); err == nil {
		err = p.out.Decode(&ends)
	}
	if err != nil {
		p.close()
		return nil, cmp.Or(context.Cause(ctx), fmt.Errorf("a bare process ended: %s: %s", p.cmd.ProcessState, bytes.TrimSpace(p.stderr.Bytes())))
	}
	return ends, nil
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
	env := b.env(s.Workload)
	for name, value := range env {
		os.Setenv(name, value)
	}
	task, err := local.FindTask(b.file+":"+s.Workload,
		config.Task{Interpreter: b.python, PassEnv: append(slices.Collect(maps.Keys(env)), "PYTHONPATH")})
	if err != nil {
		return nil, err
	}
	o := b.app.localOptions(true)
	o.Task, o.Headless = task, true
	o.Pools = []config.Pool{{Name: "bench", Devices: []string{b.device.UUID}, Sharing: s.Sharing, Slots: config.Slots(s.Clients)}}
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
	in := gpumux.MapInput{Task: p.task, Ladder: []string{"bench"}, Range: &items, Chunk: chunk, Window: p.Clients,
		Mode: gpumux.Mode(p.Way)}
	h, err := p.session.Start(ctx, starter.Map{ID: "bench-" + strings.ToLower(rand.Text()[:10]), Input: in, Label: "gpumux bench"})
	if err == nil {
		_, err = h.Wait(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", p.Workload, err)
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
			return nil, nil, fmt.Errorf("item %d of %s: %w", result.Index, p.Workload, err)
		}
		ends[stamp.Slot], env = append(ends[stamp.Slot], stamp.Ended), stamp.Env
	}
	return ends, env, nil
}

func (p *benchPool) piece(ctx context.Context, items int) ([][]int64, error) {
	ends, _, err := p.run(ctx, gpumux.Range{End: int64(items * p.Clients)}, items)
	return slices.Collect(maps.Values(ends)), err
}
