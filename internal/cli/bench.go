package cli

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/gpu"
)

// A stage of bench measures one workload in one pool. In each round the slots and as many
// bare processes run a piece each, in turns, so that other work on the machine hits both
// alike. A piece of slots is a map with one chunk per slot.

//go:embed bench/workloads.py
var benchScript string

// benchWorkloads are functions of workloads.py, and benchFrameworks what they can use, in
// the order in which each is tried.
var (
	benchWorkloads  = []string{"heavy", "medium", "detector", "light"}
	benchFrameworks = []string{"torch", "jax", "cupy", "numpy"}
	benchSharings   = []string{"default", "mps"}
)

type bench struct {
	clients                 []int
	limit                   time.Duration
	workloads, sharing      []string
	python, framework, pool string
	noFresh                 bool
	jsonFile                string

	app    *app
	file   string // workloads.py
	device gpu.Device
	report benchReport
}

func benchCommand(a *app) *cobra.Command {
	b := &bench{app: a}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what slots bring on this machine, beside processes without gpumux",
		Long: `Measure workloads in slots beside as many bare processes that run the same function without gpumux.

  heavy     a product of two matrices of 2048×2048, or 8192×8192 on a GPU
  medium    a product of two matrices of 1024×1024, or 4096×4096 on a GPU
  detector  an inference of the size of a small object detector
  light     next to nothing: what an item costs

Each runs with every number of --clients, under every way of --sharing that this machine allows, in nine
rounds or until the time is up. docs/benchmarks.md explains the report.`,
		Example: `  gpumux bench
  gpumux bench --clients 1,3,5,7
  gpumux bench --workloads medium,light --limit 5s --json bench.json`,
		Args: cobra.NoArgs,
	}
	flags := c.Flags()
	flags.IntSliceVar(&b.clients, "clients", nil, "numbers of slots that share the device, beside 1 (default 4, or one per core where those are fewer)")
	flags.DurationVar(&b.limit, "limit", 30*time.Second, "most time for a workload in one pool; pieces are shorter where it is")
	flags.StringSliceVar(&b.workloads, "workloads", benchWorkloads, "workloads to run")
	flags.StringVar(&b.python, "python", "", pythonUsage)
	flags.StringVar(&b.framework, "framework", "", "torch, jax, cupy or numpy (default: the first that reaches a GPU, else the first that is there)")
	flags.StringVar(&b.pool, "pool", "", "gpu or cpu (default what the machine has)")
	flags.StringSliceVar(&b.sharing, "sharing", benchSharings, "ways to share the device; default is always measured, mps where this machine allows it")
	flags.BoolVar(&b.noFresh, "no-fresh", false, "leave out slots with a new process per item")
	flags.StringVar(&b.jsonFile, "json", "", "write JSON to this file, after each stage")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := cmp.Or(b.check(), a.needLocal("bench")); err != nil {
			return err
		}
		return b.run(c.Context())
	}
	return c
}

func (b *bench) check() error {
	var m mistakes
	for _, n := range b.clients {
		m.when(n < 1 || n > 64, "--clients %d is outside 1 to 64", n)
	}
	m.when(b.limit <= 0, "--limit %s is no time", b.limit)
	known := func(flag string, all []string, names ...string) {
		for _, name := range names {
			m.when(name != "" && !slices.Contains(all, name), "--%s %q is unknown; there are %s", flag, name, strings.Join(all, ", "))
		}
	}
	known("workloads", benchWorkloads, b.workloads...)
	known("sharing", benchSharings, b.sharing...)
	known("pool", []string{"gpu", "cpu"}, b.pool)
	known("framework", benchFrameworks, b.framework)
	if b.jsonFile != "" { // before minutes are spent on its contents
		err := os.WriteFile(b.jsonFile, nil, 0o644)
		m.when(err != nil, "%v; name another file for the report", err)
	}
	return m.err()
}

func (b *bench) run(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "gpumux-bench-")
	defer os.RemoveAll(folder)
	b.file, b.report.Version = filepath.Join(folder, "workloads.py"), b.app.Version
	if err == nil {
		err = os.WriteFile(b.file, []byte(benchScript), 0o644)
	}
	if err == nil {
		err = b.choose(ctx)
	}
	if err != nil {
		return unavailable(err)
	}
	if len(b.clients) == 0 {
		b.clients = []int{min(runtime.GOMAXPROCS(0), 4)}
	}
	b.clients = slices.Compact(slices.Sorted(slices.Values(append(b.clients, 1))))
	stages := b.stages()
	for _, workload := range b.workloads {
		for _, s := range stages {
			s.Workload = workload
			if err := errors.Join(b.runStage(ctx, s), b.keep()); err != nil {
				return err
			}
		}
	}
	b.app.console.Close()
	return b.report.print(b.app.Stdout)
}

func (b *bench) keep() error {
	if b.jsonFile == "" {
		return nil
	}
	var text bytes.Buffer
	return errors.Join(printJSON(&text, b.report), os.WriteFile(b.jsonFile, text.Bytes(), 0o644))
}

// choose takes the device and asks the interpreter what it has on it.
func (b *bench) choose(ctx context.Context) error {
	inventory, err := gpu.Open(ctx, gpu.Options{})
	if err != nil {
		return fmt.Errorf("list this machine's devices: %w", err)
	}
	defer inventory.Close()
	devices, err := inventory.Select(gpu.Selection{"all"})
	if b.pool == "cpu" || b.pool == "" && err != nil {
		devices, err = inventory.Select(gpu.Selection{"cpu"})
	}
	if err != nil {
		return fmt.Errorf("%w; measure the CPU with --pool cpu", err)
	}
	b.device = devices[0]
	if len(devices) > 1 {
		b.note("only the first of %d devices is measured", len(devices))
	}
	return b.probe(ctx)
}

func (b *bench) onGPU() bool { return b.device.Kind != gpu.KindCPU }

func (b *bench) note(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(b.report.Notes, note) {
		b.report.Notes = append(b.report.Notes, note)
	}
}

// probe asks the interpreter what it has on the device, before a slot's environment is
// known.
func (b *bench) probe(ctx context.Context) error {
	env := []string{"CUDA_VISIBLE_DEVICES=", "JAX_PLATFORMS=cpu"}
	if b.onGPU() {
		env = []string{"CUDA_VISIBLE_DEVICES=" + b.device.UUID, "CUDA_DEVICE_ORDER=PCI_BUS_ID"}
	}
	env = slices.Concat(os.Environ(), env, []string{"XLA_PYTHON_CLIENT_PREALLOCATE=false", "BENCH_FRAMEWORK=" + b.framework})
	b.python = cmp.Or(b.python, "python3")
	out, err := b.command(ctx, env, "probe").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	// Interpreter is the Python itself, where --python may name a version manager's
	// script, which would cost time at every start. Lacking names the frameworks that
	// cannot be used, and why.
	var found struct {
		machine
		Interpreter, Version, Lacking string
	}
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		return fmt.Errorf("ask %s for its frameworks: %w; install Python 3, or give another --python", b.python, err)
	}
	if !slices.Equal(b.workloads, []string{"light"}) && (found.Framework == "" || b.onGPU() && !found.GPU) {
		return fmt.Errorf("no framework of %s can multiply matrices on %s (%s); install one, give another --python, "+
			"measure the CPU with --pool cpu, or only the workload light", found.Interpreter, b.device, found.Lacking)
	}
	b.python, b.framework, b.report.Machine = found.Interpreter, found.Framework, found.machine
	m := &b.report.Machine
	m.OS, m.CPUs, m.GPU, m.Device = runtime.GOOS+"/"+runtime.GOARCH, runtime.GOMAXPROCS(0), b.onGPU(), cmp.Or(m.Device, b.device.Name)
	m.Framework = strings.TrimSpace(m.Framework + " " + found.Version)
	return nil
}

func (b *bench) stages() (all []benchStage) {
	for _, sharing := range benchSharings {
		if sharing != benchSharings[0] && !(b.onGPU() && slices.Contains(b.sharing, sharing)) {
			continue
		}
		for _, clients := range b.clients {
			all = append(all, benchStage{Way: wayPersistent, Sharing: sharing, Clients: clients})
		}
	}
	if !b.noFresh {
		all = append(all, benchStage{Way: wayFresh, Sharing: benchSharings[0], Clients: slices.Max(b.clients)})
	}
	return all
}
