package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/workers/config"
)

type devFlags struct {
	taskFlags
	tasks, data  string
	port, uiPort int
	headless     bool
	noWorker     bool
	private      bool
}

func devCommand(a *app) *cobra.Command {
	f := &devFlags{}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Start Temporal, its Web UI and a worker on this machine",
		Long: `Start Temporal, its Web UI and a worker on this machine, all on loopback, until Ctrl-C. The worker offers
every function of the Python modules in a folder as module:function, on the pool gpu when there is a GPU
and on the pool cpu. What maps have done lies in the data folder and is there again at the next start.

Other users of this machine can use it as well, and so run tasks as you. With --private they cannot: it then
asks for a token, in a file of variables to take over in a shell (set -a; . FILE; set +a).`,
		Example: `  gpumux dev --tasks .
  gpumux dev --tasks ./tasks --slots 4 --memory 8GiB
  gpumux dev --no-worker --port 7300 --ui-port 8300`,
		Args: cobra.NoArgs,
	}
	flags := c.Flags()
	flags.StringVar(&f.tasks, "tasks", ".", "folder of Python modules whose functions are the tasks")
	flags.Func("slots", slotsUsage, f.parseSlots)
	flags.StringSliceVar((*[]string)(&f.pool.Devices), "devices", nil, "the GPUs to use, such as 0,2 (default all); "+devicesUsage)
	flags.Func("memory", "memory `budget` of a slot on a GPU, such as 8GiB", f.parseMemory)
	flags.StringVar(&f.pool.Sharing, "sharing", "", sharingUsage)
	flags.StringVar(&f.data, "data", "", "folder of the state (default ~/.local/state/gpumux/dev)")
	flags.StringVar(&f.task.Python, "python", "", "the Python to use (default python3)")
	flags.StringSliceVar(&f.task.PassEnv, "pass-env", nil, "further variables of this environment that tasks see, such as HF_TOKEN")
	f.registerStart(flags, "")
	flags.IntVar(&f.port, "port", 7233, "port of Temporal")
	flags.IntVar(&f.uiPort, "ui-port", 8233, "port of the Web UI")
	flags.BoolVar(&f.headless, "headless", false, "without the Web UI")
	flags.BoolVar(&f.private, "private", false, "keep other users of this machine out")
	flags.BoolVar(&f.noWorker, "no-worker", false, "without a worker")
	c.RunE = func(c *cobra.Command, _ []string) error { return runDev(a, c, f) }
	return c
}

func runDev(a *app, c *cobra.Command, f *devFlags) error {
	if err := a.needLocal("gpumux dev"); err != nil {
		return err
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
	variables, err := variables(s)
	if err != nil {
		return err
	}
	if address := s.Server.Address(); address != "127.0.0.1:7233" {
		a.address = address // of the commands in what is said from here on
	}
	greet(a, s, o.Modules, noGPU, variables)
	<-s.Context().Done()
	if err := context.Cause(s.Context()); !errors.Is(err, errInterrupted) {
		return err
	}
	a.console.Say("stopping; Ctrl-C again ends at once")
	return nil
}

func devOptions(ctx context.Context, a *app, f *devFlags) (o local.Options, noGPU string, err error) {
	o = a.localOptions(false)
	o.Data, o.Port, o.UIPort, o.Headless = f.data, f.port, f.uiPort, f.headless
	o.Public, o.StopTimeout = !f.private, 10*time.Second
	if o.Data == "" {
		if o.Data, err = local.Folder("dev"); err != nil {
			return o, "", err
		}
	}
	if f.noWorker {
		return o, "", nil
	}
	dir, err := filepath.Abs(f.tasks)
	if err != nil {
		return o, "", usage("--tasks %s: %v", f.tasks, err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return o, "", usage("--tasks %s is not a folder; name the one that holds your Python modules", f.tasks)
	}
	o.Modules = &config.Task{PythonDir: dir, Interpreter: f.task.Python, PassEnv: passedHere(a, f.task.PassEnv), Start: f.task.Start}
	if noGPU, err = o.Place(ctx, []string{"gpu", "cpu"}, f.pool); err != nil {
		return o, "", err
	}
	if noGPU != "" || slices.Equal(f.pool.Devices, gpu.Selection{"cpu"}) {
		o.Pools = o.Pools[1:]
	} else {
		o.Pools[1].Memory = 0 // the budget is meant for GPUs
	}
	return o, noGPU, f.size(o.Pools)
}

// variables writes a private server's address and token into a file of this user, and
// returns its name. A public server has none.
func variables(s *local.Session) (string, error) {
	if s.Token == "" {
		return "", nil
	}
	path := filepath.Join(s.Data, "temporal.env")
	text := fmt.Sprintf("TEMPORAL_ADDRESS='%s'\nTEMPORAL_GRPC_META_AUTHORIZATION='Bearer %s'\n", s.Server.Address(), s.Token)
	if ui := s.Server.UI(); ui != "" {
		text += fmt.Sprintf("GPUMUX_UI='%s'\n", ui)
	}
	err := os.Remove(path) // a file that is there may be open to others
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		return "", unavailable(fmt.Errorf("write the variables for other programs: %w; give another folder with --data", err))
	}
	return path, nil
}

func greet(a *app, s *local.Session, modules *config.Task, noGPU, variables string) {
	private := "no: other users of this machine can run tasks as you; --private keeps them out"
	if variables != "" {
		private = "other programs of yours need:  set -a; . " + shellLine([]string{variables}) + "; set +a"
	}
	ui := ""
	if s.Server.UI() != "" {
		ui = connectionOf(s).page("/")
	}
	report.Fields(a.console, "temporal", s.Server.Address(), "web UI", ui, "private", private, "data", s.Data)
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
