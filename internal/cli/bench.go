package cli

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/sharing"
)

// How bench measures
//
// A stage measures one workload in one pool. In each round the slots, as many bare
// processes, and one bare process alone run a piece each. The process alone is the
// unshared device. Every other round goes backwards, so that other work on the machine
// hits all alike, and shares are computed within a round.
//
// The throughput of a piece is that of its steady state, while all slots have work. A
// piece of slots is a map with one chunk per slot. Slots are those of ordinary maps in a
// session of package local.

//go:embed bench/workloads.py
var benchScript string

// benchWorkloads are functions of workloads.py, and benchFrameworks what they can use, in
// the order in which each is tried. benchSharings are the ways to share a device that are
// measured.
var (
	benchWorkloads  = []string{"heavy", "medium", "detector", "light"}
	benchFrameworks = []string{"torch", "jax", "cupy", "numpy"}
	benchSharings   = []string{string(sharing.Default), string(sharing.MPS), string(sharing.MIG)}
)

type benchFlags struct {
	clients                 []int
	limit                   time.Duration
	workloads, sharing      []string
	python, framework, pool string
	noFresh                 bool
	htmlFile, jsonFile      string
}

func benchCommand(a *app) *cobra.Command {
	f := &benchFlags{}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what slots bring on this machine, beside processes without gpumux",
		Long: `Measure workloads in slots beside bare processes that run the same function without gpumux, and say what
suits this machine: how many slots share the device, and by which way.

  heavy     a product of two matrices of 2048×2048, or 8192×8192 on a GPU
  medium    a product of two matrices of 1024×1024, or 4096×4096 on a GPU
  detector  an inference of the size of a small object detector
  light     next to nothing: what an item costs

Each runs with every number of --clients, under every way to share the device that this machine allows, in
nine rounds or until the time is up. docs/benchmarks.md explains the report. PyTorch, JAX, CuPy or NumPy
calculates.

The server and the worker are its own and end with it.`,
		Example: `  gpumux bench
  gpumux bench --clients 1,3,5,7 --html report.html
  gpumux bench --workloads medium,light --limit 5s --json -`,
		Args: cobra.NoArgs,
	}
	flags := c.Flags()
	flags.IntSliceVar(&f.clients, "clients", nil, "numbers of slots that share the device, beside 1 (default 4, or one per core where those are fewer)")
	flags.DurationVar(&f.limit, "limit", 30*time.Second, "most time for a workload in one pool; pieces are shorter where it is")
	flags.StringSliceVar(&f.workloads, "workloads", benchWorkloads, "workloads to run")
	flags.StringVar(&f.python, "python", "", pythonUsage)
	flags.StringVar(&f.framework, "framework", "", "torch, jax, cupy or numpy (default: the first that reaches a GPU, else the first that is there)")
	flags.StringVar(&f.pool, "pool", "", "gpu or cpu (default what the machine has)")
	flags.StringSliceVar(&f.sharing, "sharing", benchSharings, "ways to share the device that are measured beside default, where this machine allows them")
	flags.BoolVar(&f.noFresh, "no-fresh", false, "leave out slots with a new process per item")
	flags.StringVar(&f.htmlFile, "html", "", "write a page with charts to this file; it needs no network")
	flags.StringVar(&f.jsonFile, "json", "", "write JSON to this file, after each stage, or - for standard output in place of the table")
	a.keysFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		if err := a.needLocal("bench"); err != nil {
			return err
		}
		return f.run(c.Context(), a)
	}
	return c
}

func (f *benchFlags) check() error {
	var m mistakes
	for _, n := range f.clients {
		const limit = 64
		m.when(n < 1 || n > limit, "--clients %d is outside 1 to %d", n, limit)
	}
	m.when(f.limit <= 0, "--limit %s is no time", f.limit)
	known := func(flag string, all []string, names ...string) {
		for _, name := range names {
			m.when(name != "" && !slices.Contains(all, name), "--%s %q is unknown; there are %s", flag, name, strings.Join(all, ", "))
		}
	}
	known("workloads", benchWorkloads, f.workloads...)
	known("sharing", benchSharings, f.sharing...)
	known("pool", []string{"gpu", "cpu"}, f.pool)
	known("framework", benchFrameworks, f.framework)
	m.when(f.htmlFile == "-", "--html - : a page goes to a file")
	for _, path := range []string{f.htmlFile, f.jsonFile} { // before minutes are spent on their contents
		if err := writeFile(path, func(io.Writer) error { return nil }); err != nil {
			m.add("%v; name another file for the report", err)
		}
	}
	return m.err()
}

func (f *benchFlags) run(ctx context.Context, a *app) error {
	folder, err := os.MkdirTemp("", "gpumux-bench-")
	if err != nil {
		return unavailable(err)
	}
	defer os.RemoveAll(folder)
	b := &bench{benchFlags: *f, app: a, file: filepath.Join(folder, "workloads.py"), environs: map[int]map[string]string{},
		report: &benchReport{Version: a.Version}}
	if err := os.WriteFile(b.file, []byte(benchScript), 0o644); err != nil {
		return unavailable(err)
	}
	if len(f.clients) == 0 {
		b.clients = []int{min(runtime.GOMAXPROCS(0), 4)}
	}
	b.clients = slices.Compact(slices.Sorted(slices.Values(append(b.clients, 1))))
	if err := b.choose(ctx); err != nil {
		return unavailable(err)
	}
	if err := b.measure(ctx); err != nil {
		return err
	}
	a.console.Close()
	out := a.Stdout
	if f.jsonFile == "-" {
		if err := printJSON(a.Stdout, b.report); err != nil {
			return err
		}
		out = a.console
	}
	return errors.Join(b.report.print(out), writeFile(f.htmlFile, b.report.html))
}

func (b *bench) keep() error {
	return writeFile(b.jsonFile, func(to io.Writer) error { return printJSON(to, b.report) })
}

func (b *bench) say(text string) {
	if b.app.console.Redraws() {
		b.app.console.Status(text)
	} else {
		b.app.console.Say("%s", text)
	}
}

// writeFile makes a file, unless its path is empty or -.
func writeFile(path string, contents func(io.Writer) error) error {
	if path == "" || path == "-" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return unavailable(err)
	}
	return errors.Join(contents(file), file.Close())
}
