package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

func workerCommand(a *app) *cobra.Command {
	f := &workerFlags{}
	var check bool
	c := &cobra.Command{
		Use:   "worker {-f FILE | --tasks FOLDER}",
		Short: "Serve this host's devices",
		Long: `Serve this host's devices, as the worker's file says, or with the functions of a folder of Python modules
as gpumux dev does, until SIGTERM or Ctrl-C, or until its connection file is deleted: then running chunks
finish or are handed back, and every task process ends. A second signal ends it at once.

The log goes to standard error, as JSON lines when that is no terminal.`,
		Example: `  gpumux worker -f gpumux.yaml
  gpumux worker -f gpumux.yaml --check
  gpumux worker --tasks ./tasks --connect /shared/gpumux/temporal.toml`,
		Args: cobra.NoArgs,
	}
	flags := c.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "the worker's file")
	flags.StringVar(&f.tasks, "tasks", "", "folder of Python modules whose functions are the tasks, in place of a file")
	f.register(flags)
	flags.StringVar(&f.connect, "connect", "", connectUsage)
	flags.BoolVar(&check, "check", false, "only check the file against this host, its GPUs, and whether its store and Temporal can be used; no task is imported")
	c.RunE = func(c *cobra.Command, _ []string) error {
		conf, inventory, err := f.read(c, a)
		if err != nil {
			return err
		}
		defer inventory.Close()
		if check {
			return checkWorker(c.Context(), a, f, conf, inventory)
		}
		log := newLog(a.console, true)
		if !report.IsTerminal(a.Stderr) { // for programs: a JSON object per line, from info up
			encoding := zap.NewProductionEncoderConfig()
			encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
			log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(encoding), zapcore.AddSync(a.console), zapcore.InfoLevel))
		}
		w, err := workers.New(conf, workers.Options{Dedicated: true, Inventory: inventory, Version: a.Version, Log: log})
		if err != nil {
			return inFlags(err)
		}
		return serveWorker(c.Context(), a, w, log, conf.Temporal.Connect)
	}
	return c
}

type workerFlags struct {
	modulesFlags
	file, connect string
}

// read makes the worker's configuration of its file, or of the folder of tasks.
func (f *workerFlags) read(c *cobra.Command, a *app) (conf config.Config, inventory *gpu.Inventory, err error) {
	connect := f.connect
	if connect != "" {
		if connect, err = filepath.Abs(connect); err != nil {
			return conf, nil, err
		}
	}
	switch {
	case (f.tasks == "") == (f.file == ""):
		return conf, nil, usage("give either the worker's file or a folder of tasks: gpumux worker -f gpumux.yaml, gpumux worker --tasks .")
	case f.tasks != "":
		var o local.Options
		var noGPU string
		if noGPU, err = f.place(c.Context(), a, &o); err != nil {
			return conf, nil, err
		}
		if noGPU != "" {
			a.console.Say("note: the CPU runs it: %s", noGPU)
		}
		conf, inventory = config.Config{Dir: f.tasks, Pools: o.Pools, Tasks: map[string]config.Task{"*": *o.Modules}}, o.Inventory
	default:
		for _, flag := range []string{"slots", "devices", "memory", "sharing", "python", "pass-env", "start-timeout"} {
			if c.Flags().Changed(flag) {
				return conf, nil, usage("--%s goes with --tasks; the worker's file says it itself", flag)
			}
		}
		if conf, err = config.Load(f.file); err != nil {
			if !errors.As(err, new(*config.Error)) {
				err = usage("%v", err)
			}
			return conf, nil, err
		}
		if inventory, err = gpu.Open(c.Context(), gpu.Options{}); err != nil {
			return conf, nil, unavailable(fmt.Errorf("list this machine's devices: %w", err))
		}
	}
	conf.Temporal.Connect = cmp.Or(connect, conf.Temporal.Connect)
	return conf, inventory, nil
}

func checkWorker(ctx context.Context, a *app, f *workerFlags, conf config.Config, inventory *gpu.Inventory) error {
	placements, tasks, err := conf.Plan(inventory)
	if err != nil {
		return err
	}
	findings := []finding{{Check: "file", Status: checkGood, Detail: cmp.Or(f.file, f.tasks) + " is good for this host"}}
	findings = append(findings, probeGPUs(ctx, inventory, config.Devices(placements), tasks.Interpreter())...)
	a.connectionFile, a.address, a.namespace = conf.Temporal.Connect, conf.Temporal.Address, conf.Temporal.Namespace
	conn, reached := checkTemporal(ctx, a)
	url, id := conn.storeOr(conf.Store)
	if conn != nil {
		conn.close()
	} else {
		reached.Status = checkBad
		reached.Fix += "; the worker connects as temporal.connect or temporal.address in its file says, else as TEMPORAL_CONFIG_FILE and TEMPORAL_ADDRESS do"
	}
	if findings = append(findings, reached); url != "" {
		findings = append(findings, checkStore(ctx, url, id))
	}
	return a.tell(ctx, findings, false, exitUnavailable)
}

// A worker whose connection file is away at several looks in a row ends.
const look, looks = 500 * time.Millisecond, 3

func serveWorker(ctx context.Context, a *app, w *workers.Worker, log *zap.Logger, connect string) error {
	if err := w.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return unavailable(err)
	}
	offer := w.Describe()
	log.Info("serving", zap.String("pools", report.Pools(offer.Pools)), zap.Strings("tasks", offer.Tasks), zap.String("store", offer.Store))
	var failure error
	var ticks <-chan time.Time
	if connect != "" {
		ticks = time.Tick(look)
	}
	for missed := 0; missed < looks; {
		select {
		case <-ctx.Done():
			log.Info("stopping: running chunks finish or are handed back; a second signal ends at once")
			missed = looks
		case failure = <-w.Failed():
			failure, missed = unavailable(fmt.Errorf("serve: %w", failure)), looks
		case <-ticks:
			if _, err := os.Stat(connect); !errors.Is(err, fs.ErrNotExist) {
				missed = 0
			} else if missed++; missed == looks {
				log.Info("the connection file is gone, as when its map has ended; stopping", zap.String("file", connect))
			}
		}
	}
	err := w.Stop(a.hard)
	log.Info("stopped", zap.Error(err))
	if a.hard.Err() != nil {
		return errInterrupted
	}
	return errors.Join(failure, err)
}
