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

// startBare starts processes on the measured device and returns when all are warm.
func (b *bench) startBare(ctx context.Context, workload string, clients int) (*bareProcesses, error) {
	var env []string
	for _, part := range []map[string]string{b.environs[clients], b.env(workload)} {
		for name, value := range part {
			env = append(env, name+"="+value)
		}
	}
	p := &bareProcesses{cmd: b.command(ctx, env, "bare", workload, strconv.Itoa(clients))}
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
	o.Pools = []config.Pool{{Name: "bench", Devices: s.devices, Sharing: s.sharing, Slots: config.Slots(s.slots)}}
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
	in := gpumux.MapInput{Task: p.task, Ladder: []string{"bench"}, Range: &items, Chunk: chunk, Window: p.clients()}
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
	ends, _, err := p.run(ctx, gpumux.Range{End: int64(items * p.clients())}, items)
	return benchSampleOf(slices.Collect(maps.Values(ends)), p.clients()), err
}

func (p *benchPool) warm(ctx context.Context) (env map[string]string, err error) {
	warmed := map[string][]int64{}
	for range 5 { // each map may miss some of the slots
		ends, env, err := p.run(ctx, gpumux.Range{Start: -int64(p.clients())}, 1)
		if err != nil {
			return nil, err
		}
		if maps.Copy(warmed, ends); len(warmed) == p.clients() || p.way == wayFresh {
			return env, nil
		}
	}
	return nil, fmt.Errorf("only %d of %d slots took an item of %s", len(warmed), p.clients(), p.workload)
}
