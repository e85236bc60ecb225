package cli

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/workers/config"
)

// modulesFlags are those of a worker that offers the functions of a folder.
type modulesFlags struct {
	taskFlags
	tasks string
}

func (f *modulesFlags) register(flags *pflag.FlagSet) {
	f.registerSlots(flags, "")
	flags.Func("memory", "memory `budget` of a slot on a GPU, such as 8GiB", f.parseMemory)
}

// place sets the modules and the pools gpu, where there is a GPU, and cpu.
func (f *modulesFlags) place(ctx context.Context, a *app, o *local.Options) (noGPU string, err error) {
	dir, err := filepath.Abs(f.tasks)
	if err != nil {
		return "", usage("--tasks %s: %v", f.tasks, err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", usage("--tasks %s is not a folder; name the one that holds your Python modules", f.tasks)
	}
	o.Modules = &config.Task{PythonDir: dir, Interpreter: f.task.Interpreter, PassEnv: passedHere(a, f.task.PassEnv), Start: f.task.Start}
	if noGPU, err = o.Place(ctx, []string{"gpu", "cpu"}, f.pool); err != nil {
		return "", err
	}
	if noGPU != "" || slices.Equal(f.pool.Devices, gpu.Selection{"cpu"}) {
		o.Pools = o.Pools[1:]
	} else {
		o.Pools[1].Memory = 0 // the budget is meant for GPUs
	}
	return noGPU, f.size(o.Pools)
}

type devFlags struct {
	modulesFlags
	data, listen, store string
	port, uiPort        int
	headless            bool
	noWorker            bool
}

func devCommand(a *app) *cobra.Command {
	f := &devFlags{}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Start Temporal, its Web UI and a worker on this machine",
		Long: `Start Temporal, its Web UI and a worker on this machine, until Ctrl-C. The worker offers every function
of the Python modules in a folder as module:function, on the pool gpu when there is a GPU and on the pool
cpu. What maps have done lies in the data folder and is there again at the next start.

All is on loopback, where other users of this machine can use it as well, and so run tasks as you. With
--listen it is for those who have the connection file that it writes, here (--listen 127.0.0.1) or on other
hosts too (--listen with a name of this host): they give it as --connect, programs as TEMPORAL_CONFIG_FILE.
It stays the same for a data folder. Only one host at a time may serve a folder.`,
		Example: `  gpumux dev --tasks .
  gpumux dev --tasks ./tasks --slots 4 --memory 8GiB
  gpumux dev --listen gpu1.lab --data /shared/gpumux
  gpumux dev --no-worker --port 7300 --ui-port 8300`,
		Args: cobra.NoArgs,
	}
	flags := c.Flags()
	flags.StringVar(&f.tasks, "tasks", ".", "folder of Python modules whose functions are the tasks")
	f.register(flags)
	flags.StringVar(&f.data, "data", "", "folder of the state (default ~/.local/state/gpumux/dev)")
	flags.StringVar(&f.store, "store", "", "blob URL of the store, such as s3://bucket (default: a folder in --data)")
	flags.StringVar(&f.listen, "listen", "", "serve those who have the connection file at this `HOST[:PORT]`: a name of this host, its address, or 127.0.0.1")
	flags.IntVar(&f.port, "port", 7233, "port of Temporal")
	flags.IntVar(&f.uiPort, "ui-port", 8233, "port of the Web UI")
	flags.BoolVar(&f.headless, "headless", false, "without the Web UI")
	flags.BoolVar(&f.noWorker, "no-worker", false, "without a worker")
	c.RunE = func(c *cobra.Command, _ []string) error { return runDev(a, c, f) }
	return c
}

func runDev(a *app, c *cobra.Command, f *devFlags) error {
	if err := a.needLocal("gpumux dev"); err != nil {
		return err
	}
	if c.Flags().Changed("listen") && f.listen == "" {
		return usage("--listen is empty, perhaps from a variable that is not set")
	}
	o, noGPU, err := devOptions(c.Context(), a, f)
	if err != nil {
		return err
	}
	s, err := local.Open(c.Context(), o)
	if err != nil {
		if c.Context().Err() != nil {
			return errInterrupted
		}
		return inFlags(err)
	}
	defer s.Close(a.hard)
	switch address := s.Server.Address(); { // of the commands in what is said from here on
	case s.File != "":
		a.connectionFile = s.File
	case address != "127.0.0.1:7233":
		a.address = address
	}
	greet(a, s, o.Modules, noGPU)
	<-s.Context().Done()
	if err := context.Cause(s.Context()); !errors.Is(err, errInterrupted) {
		return err
	}
	a.console.Say("stopping; Ctrl-C again ends at once")
	return nil
}

func devOptions(ctx context.Context, a *app, f *devFlags) (o local.Options, noGPU string, err error) {
	o = a.localOptions(false)
	o.Data, o.Store, o.Port, o.UIPort, o.Headless = f.data, f.store, f.port, f.uiPort, f.headless
	o.StopTimeout = 10 * time.Second
	if o.Public = f.listen == ""; !o.Public {
		if err := listenAt(&o, f.listen, f.port); err != nil {
			return o, "", err
		}
	}
	if o.Data == "" {
		if o.Data, err = local.Folder("dev"); err != nil {
			return o, "", err
		}
	}
	if f.noWorker {
		return o, "", nil
	}
	noGPU, err = f.place(ctx, a, &o)
	return o, noGPU, err
}

func listenAt(o *local.Options, listen string, port int) error {
	host, number, err := net.SplitHostPort(listen)
	if err != nil {
		host, number = listen, strconv.Itoa(port)
	}
	o.Host, o.Bind = host, "0.0.0.0"
	o.Port, err = strconv.Atoi(number)
	ip := net.ParseIP(host)
	_, unknown := net.LookupHost(cmp.Or(host, "localhost"))
	switch {
	case unknown != nil || err != nil || o.Port < 0 || o.Port > 65535 || strings.Contains(host, ":"):
		return usage("--listen %q: write it as HOST or HOST:PORT, with a name or an IPv4 address of this host", listen)
	case names.Loopback(host):
		o.Host, o.Bind = "127.0.0.1", "127.0.0.1"
	case ip != nil && !ip.IsUnspecified():
		o.Bind = ip.String()
	case ip != nil || host == "":
		if o.Host, err = os.Hostname(); err != nil {
			return usage("--listen %s: this host's name is not known (%v); give it", listen, err)
		}
	}
	return nil
}

func greet(a *app, s *local.Session, modules *config.Task, noGPU string) {
	private := "no: other users of this machine can run tasks as you; --listen 127.0.0.1 keeps them out"
	if s.File != "" {
		private = "for those who have " + s.File + "; programs: export TEMPORAL_CONFIG_FILE=" + shellLine([]string{s.File})
	}
	ui := ""
	if s.Server.UI() != "" {
		ui = connectionOf(s).page("/")
	}
	report.Fields(a.console, "temporal", cmp.Or(s.Address, s.Server.Address()), "web UI", ui, "private", private, "data", s.Data)
	if modules != nil { // other workers have their own store
		offer := s.Describe()
		tasks := report.OneLine(strings.Join(offer.Tasks, ", "), 200)
		if tasks == "" {
			tasks = "none yet: put def embed(item): … into " + filepath.Join(modules.PythonDir, "embed.py")
		}
		report.Fields(a.console, "store", s.Store, "pools", report.Pools(offer.Pools), "tasks", tasks, "no GPU", noGPU)
	}
	a.console.Say("\ntry it:   %s", a.command("workers"))
	a.console.Say("Ctrl-C stops")
}
