package host

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/bench"
	"github.com/gpumux/gpumux/internal/local"
)

type benchFlags struct {
	bench.Options
	html, json string
}

func benchCommand(a *app.App) *cobra.Command {
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
	flags.IntSliceVar(&f.Clients, "clients", nil, "numbers of slots that share the device, beside 1 (default 4, or one per core where those are fewer)")
	flags.DurationVar(&f.Limit, "limit", 30*time.Second, "most time for a workload in one pool; pieces are shorter where it is")
	flags.StringSliceVar(&f.Workloads, "workloads", bench.Workloads, "workloads to run")
	flags.StringVar(&f.Python, "python", "", "the Python to use (default python3)")
	flags.StringVar(&f.Framework, "framework", "", "torch, jax, cupy or numpy (default: the first that reaches a GPU, else the first that is there)")
	flags.StringVar(&f.Pool, "pool", "", "gpu or cpu (default: the GPU, where there is one)")
	flags.StringSliceVar(&f.Sharing, "sharing", bench.Sharings, "ways to share the device that are measured beside default, where this machine allows them")
	flags.BoolVar(&f.NoFresh, "no-fresh", false, "leave out slots with a new process per item")
	flags.StringVar(&f.html, "html", "", "write a page with charts to this file; it needs no network")
	flags.StringVar(&f.json, "json", "", "write JSON to this file, after each stage, or - for standard output in place of the table")
	a.KeysFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error { return runBench(a, c, f) }
	return c
}

func (f *benchFlags) check() error {
	var m app.Mistakes
	for _, n := range f.Clients {
		const limit = 64
		m.When(n < 1 || n > limit, "--clients %d is outside 1 to %d", n, limit)
	}
	m.When(f.Limit <= 0, "--limit %s is no time", f.Limit)
	known := func(flag string, all []string, names ...string) {
		for _, name := range names {
			m.When(!slices.Contains(all, name), "--%s %q is unknown; there are %s", flag, name, strings.Join(all, ", "))
		}
	}
	known("workloads", bench.Workloads, f.Workloads...)
	known("sharing", bench.Sharings, f.Sharing...)
	if f.Pool != "" {
		known("pool", []string{"gpu", "cpu"}, f.Pool)
	}
	if f.Framework != "" {
		known("framework", bench.Frameworks, f.Framework)
	}
	m.When(f.html == "-", "--html - : a page goes to a file")
	for _, path := range []string{f.html, f.json} {
		if path == "" || path == "-" {
			continue
		}
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644) // before minutes are spent on its contents
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			m.Add("%v; name another file for the report", err)
		}
	}
	return m.Err()
}

func runBench(a *app.App, c *cobra.Command, f *benchFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := a.NeedLocal("bench"); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "gpumux-bench-")
	if err != nil {
		return app.Unavailable(err)
	}
	defer os.RemoveAll(folder)
	ctx := c.Context()
	server := a.LocalOptions(true)
	server.Data, server.Headless = filepath.Join(folder, "server"), true
	session, err := local.Open(ctx, server)
	if err != nil {
		return err
	}
	defer session.Close(a.Hard)

	o := f.Options
	if len(o.Clients) > 0 {
		o.Clients = slices.Compact(slices.Sorted(slices.Values(append(o.Clients, 1))))
	}
	o.Starter, o.Folder, o.Version, o.Hard, o.Log = session.Starter, folder, a.Version, a.Hard, a.Log(true)
	o.Say = func(text string) { a.Console.Say("%s", text) }
	if a.Console.Redraws() {
		o.Say = a.Console.Status
	}
	o.Keep = func(r *bench.Report) error {
		if f.json == "" || f.json == "-" {
			return nil
		}
		return writeFile(f.json, func(to io.Writer) error { return app.PrintJSON(to, r) })
	}
	machine, err := bench.New(ctx, o)
	if err != nil {
		return app.Unavailable(err)
	}
	defer machine.Close()
	measured, err := machine.Run(ctx)
	a.Console.Close()
	if err != nil {
		return err
	}
	out := a.Stdout
	if f.json == "-" {
		if err := app.PrintJSON(a.Stdout, measured); err != nil {
			return err
		}
		out = a.Console
	}
	if err := measured.Print(out); err != nil || f.html == "" {
		return err
	}
	return writeFile(f.html, measured.HTML)
}

func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return app.Unavailable(err)
	}
	return errors.Join(write(file), file.Close())
}
