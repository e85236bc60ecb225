package host

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/bench"
	"github.com/gpumux/gpumux/internal/local"
)

type benchFlags struct {
	bench.Options
	html, json string
}

const mostClients = 64

func benchCommand(a *app.App) *cobra.Command {
	f := &benchFlags{}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what slots bring on this machine, beside processes without gpumux",
		Long: `Measure workloads in slots beside bare processes that run the same function without gpumux, and say what
suits this machine: how many slots share the device, by which way, or the CPU.

  heavy     a product of two matrices of 2048×2048, or 8192×8192 on a GPU; not with --quick
  medium    a product of two matrices of 1024×1024, or 4096×4096 on a GPU
  detector  an inference of the size of a small object detector
  light     next to nothing: what an item costs
  oom       one item in five keeps thirty products, more than its slot's budget of 1 GiB

Each runs with every number of --clients, under every way to share the device that this machine allows, and
on the CPU beside a GPU, in nine rounds or until the time is up. docs/benchmarks.md explains the report.
PyTorch, JAX, CuPy or NumPy calculates.

The server and the worker are its own and end with it.`,
		Example: `  gpumux bench
  gpumux bench --clients 1,3,5,7 --html report.html
  gpumux bench --quick --workloads medium,light --json -`,
		Args: cobra.NoArgs,
	}
	flags := c.Flags()
	flags.IntSliceVar(&f.Clients, "clients", nil, "numbers of slots that share the device, beside 1 (default 4 on a GPU; on the CPU one per core, at most 4)")
	flags.DurationVar(&f.Limit, "limit", 0, "most time for a workload in one pool (default 30s, with --quick 10s)")
	flags.StringSliceVar(&f.Workloads, "workloads", nil, "workloads to run (default heavy,medium,detector,light,oom)")
	flags.StringVar(&f.Python, "python", "", "the Python to use (default python3)")
	flags.StringVar(&f.Framework, "framework", "", "torch, jax, cupy or numpy (default: the first that reaches a GPU, else the first that is there)")
	flags.StringVar(&f.Pool, "pool", "", "gpu or cpu (default: the GPU, and the CPU beside it, where there is one)")
	flags.StringSliceVar(&f.Sharing, "sharing", nil, "ways to share the device that are measured beside default, such as mps (default: all that this machine allows)")
	flags.BoolVar(&f.NoFresh, "no-fresh", false, "leave out slots with a new process per item")
	flags.StringVar(&f.html, "html", "", "write a page with charts to this file; it needs no network")
	flags.StringVar(&f.json, "json", "", "write JSON to this file, after each stage, or - for standard output in place of the table")
	flags.BoolVar(&f.Quick, "quick", false, "short pieces and six rounds, in a minute or two")
	a.KeysFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error { return runBench(a, c, f) }
	return c
}

func (f *benchFlags) check() error {
	var m app.Mistakes
	for _, n := range f.Clients {
		m.When(n < 1 || n > mostClients, "--clients %d is outside 1 to %d", n, mostClients)
	}
	m.When(f.Limit < 0, "--limit %s is no time", f.Limit)
	for _, name := range f.Workloads {
		m.When(!slices.Contains(bench.Workloads, name), "--workloads %q is unknown; there are %s", name, strings.Join(bench.Workloads, ", "))
	}
	for _, name := range f.Sharing {
		m.When(!slices.Contains(bench.Sharings, name), "--sharing %q is unknown; there are %s", name, strings.Join(bench.Sharings, ", "))
	}
	m.When(!slices.Contains([]string{"", "gpu", "cpu"}, f.Pool), "--pool %q is unknown; use gpu or cpu", f.Pool)
	m.When(f.Framework != "" && !slices.Contains(bench.Frameworks, f.Framework), "--framework %q is unknown; there are %s", f.Framework,
		strings.Join(bench.Frameworks, ", "))
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
	if a.Local == nil {
		return app.Usage("bench: this gpumux is built without the embedded server; use the all-in-one binary (make build)")
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
	o.Starter, o.Folder, o.Version, o.Hard = app.ConnectionOf(session).Starter, folder, a.Version, a.Hard
	o.Log = a.Log(true) // the oom workload's faults are in the report
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
	measured, err := bench.Run(ctx, o)
	a.Console.Close()
	if err != nil {
		return err
	}
	return publish(a, measured, f)
}

func publish(a *app.App, r *bench.Report, f *benchFlags) error {
	out := a.Stdout
	if f.json == "-" {
		if err := app.PrintJSON(a.Stdout, r); err != nil {
			return err
		}
		out = a.Console
	}
	if err := r.Print(out); err != nil {
		return err
	}
	if f.json != "" && f.json != "-" {
		a.Console.Say("JSON  %s", f.json)
	}
	if f.html != "" {
		if err := writeFile(f.html, r.HTML); err != nil {
			return err
		}
		a.Console.Say("page  %s", f.html)
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return app.Unavailable(err)
	}
	return errors.Join(write(file), file.Close())
}
