package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux/workers"
)

func (a *app) workerCommand() *cobra.Command {
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
	c.Flags().BoolVar(&check, "check", false, "only check the file against this host, and list every mistake")
	c.RunE = ran(func(c *cobra.Command, _ []string) error {
		if file == "" {
			return usage("give the worker's file: gpumux worker -f gpumux.yaml")
		}
		config, err := workers.Load(file)
		if err != nil {
			return usageOf(err)
		}
		if check {
			if err := checkWorker(config); err != nil {
				return err
			}
			a.console.say("%s is good for this host", file)
			return nil
		}
		log := machineLog(a.console)
		if isTerminal(a.Stderr) {
			log = newLog(a.console, true)
		}
		w, err := workers.New(config, workers.Options{Version: a.Version, Log: log})
		if err != nil {
			return err
		}
		return a.serve(c.Context(), w, log)
	})
	return c
}

// serve runs a worker until a signal.
func (a *app) serve(ctx context.Context, w *workers.Worker, log *zap.Logger) error {
	if err := w.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return unavailableError{err}
	}
	offer := w.Describe()
	log.Info("serving", zap.String("pools", offered(offer.Pools)), zap.Strings("tasks", offer.Tasks), zap.String("store", offer.Store))
	var failure error
	select {
	case <-ctx.Done():
		log.Info("stopping: running chunks finish or are handed back; a second signal ends at once")
	case failure = <-w.Failed():
		failure = unavailableError{fmt.Errorf("serve: %w", failure)}
	}
	err := w.Stop(a.hard)
	if a.hard.Err() != nil {
		return errInterrupted
	}
	return errors.Join(failure, err)
}

// usageOf makes a file that cannot be read a mistake of the caller.
func usageOf(err error) error {
	var config *workers.ConfigError
	if errors.As(err, &config) {
		return err
	}
	return usage("%v", err)
}
