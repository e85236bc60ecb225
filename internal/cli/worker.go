package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

func workerCommand(a *app) *cobra.Command {
	var file string
	var check bool
	c := &cobra.Command{
		Use:   "worker -f FILE",
		Short: "Serve this host's devices",
		Long: `Serve this host's devices as the worker's file says, until SIGTERM or Ctrl-C: then running chunks finish or
are handed back, and every task process ends. A second signal ends it at once.

The log goes to standard error, as JSON lines when that is no terminal.`,
		Example: "  gpumux worker -f gpumux.yaml\n  gpumux worker -f gpumux.yaml --check",
		Args:    cobra.NoArgs,
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the worker's file")
	c.Flags().BoolVar(&check, "check", false, "only check the file against this host, its GPUs, and whether its store and Temporal can be used")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if file == "" {
			return usage("give the worker's file: gpumux worker -f gpumux.yaml")
		}
		conf, err := config.Load(file)
		if err != nil {
			if !errors.As(err, new(*config.Error)) {
				err = usage("%v", err)
			}
			return err
		}
		if check {
			return checkWorker(c.Context(), a, file, conf)
		}
		log := newLog(a.console, true)
		if !report.IsTerminal(a.Stderr) { // for programs: a JSON object per line, from info up
			encoding := zap.NewProductionEncoderConfig()
			encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
			log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(encoding), zapcore.AddSync(a.console), zapcore.InfoLevel))
		}
		inventory, err := gpu.Open(c.Context(), gpu.Options{})
		if err != nil {
			return unavailable(fmt.Errorf("list this machine's devices: %w", err))
		}
		defer inventory.Close()
		w, err := workers.New(conf, workers.Options{Dedicated: true, Inventory: inventory, Version: a.Version, Log: log})
		if err != nil {
			return err
		}
		return serveWorker(c.Context(), a, w, log)
	}
	return c
}

func checkWorker(ctx context.Context, a *app, file string, conf config.Config) error {
	inventory, err := gpu.Open(ctx, gpu.Options{})
	if err != nil {
		return unavailable(fmt.Errorf("list this machine's devices: %w", err))
	}
	defer inventory.Close()
	placements, tasks, err := conf.Plan(inventory)
	if err != nil {
		return err
	}
	findings := []finding{{Check: "file", Status: checkGood, Detail: file + " is good for this host"}}
	findings = append(findings, probeGPUs(ctx, inventory, config.Devices(placements), tasks.Interpreter())...)
	if conf.Store != "" {
		findings = append(findings, checkStore(ctx, conf.Store))
	}
	a.address, a.namespace = conf.Temporal.Address, conf.Temporal.Namespace
	conn, reached := checkTemporal(ctx, a)
	if conn != nil {
		conn.close()
	} else {
		reached.Status = checkBad
		reached.Fix += "; the worker connects as temporal.address in its file says, else as TEMPORAL_ADDRESS"
	}
	return a.tell(ctx, append(findings, reached), false, exitUnavailable)
}

func serveWorker(ctx context.Context, a *app, w *workers.Worker, log *zap.Logger) error {
	if err := w.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return unavailable(err)
	}
	offer := w.Describe()
	log.Info("serving", zap.String("pools", report.Pools(offer.Pools)), zap.Strings("tasks", offer.Tasks), zap.String("store", offer.Store))
	var failure error
	select {
	case <-ctx.Done():
		log.Info("stopping: running chunks finish or are handed back; a second signal ends at once")
	case failure = <-w.Failed():
		failure = unavailable(fmt.Errorf("serve: %w", failure))
	}
	err := w.Stop(a.hard)
	if a.hard.Err() != nil {
		return errInterrupted
	}
	return errors.Join(failure, err)
}
