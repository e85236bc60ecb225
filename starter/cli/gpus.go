package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/starter/cli/screen"
)

// deviceReport is one device with its state, as `gpumux gpus --json` prints it.
type deviceReport struct {
	gpu.Device
	// Status of a device that is lost or silent has its health and no more.
	Status *gpu.Status `json:"status,omitempty"`
	// Error says why the state could not be read.
	Error string `json:"error,omitempty"`
}

// inventoryReport is the answer of `gpumux gpus`; docs/gpus.schema.json describes it.
type inventoryReport struct {
	// Time is when the devices were looked at, with --watch.
	Time    *time.Time     `json:"time,omitempty"`
	Devices []deviceReport `json:"devices"`
	Links   []gpu.Link     `json:"links,omitempty"`
	// Reason says why there is no GPU, or which were left out.
	Reason string `json:"reason,omitempty"`
}

// watchEvery is the time between two looks of --watch.
const watchEvery = 2 * time.Second

func (a *app) gpusCommand() *cobra.Command {
	var asJSON, topology, watch bool
	c := &cobra.Command{
		Use:   "gpus",
		Short: "Show this machine's devices: memory, health, MIG, processes, links",
		Long: `Show this machine's devices: memory, health, MIG instances below their GPU, and who holds memory on them.
HEALTH is what the driver says the device needs: ok, or drain, reset, reboot; lost or silent when it does not
answer; - when nothing tells. Details follow where there is something to say: ECC errors, remapped rows, MPS.
A pool's devices take the beginning of a UUID as well. docs/gpus.schema.json describes what --json prints.`,
		Example: "  gpumux gpus\n  gpumux gpus --watch\n  gpumux gpus --topology\n  gpumux gpus --json | jq '.devices[].status.memory.free'",
		Args:    cobra.NoArgs,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON; sizes are in bytes")
	c.Flags().BoolVar(&topology, "topology", false, "show how the GPUs are linked")
	c.Flags().BoolVar(&watch, "watch", false, "show them again every 2s until Ctrl-C; with --json a line each time")
	c.RunE = func(c *cobra.Command, _ []string) error {
		inventory, err := gpu.Open(gpu.Options{})
		if err != nil {
			return unavailable(fmt.Errorf("list this machine's devices: %w", err))
		}
		defer inventory.Close()
		look := func() (*inventoryReport, error) { return inspect(inventory, topology || asJSON) }
		if watch {
			return a.watchDevices(c.Context(), watchEvery, asJSON, topology, look)
		}
		r, err := look()
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(a.Stdout, r)
		}
		if err := printInventory(a.Stdout, r, topology); err != nil {
			return err
		}
		if r.Reason != "" {
			a.console.Say("%s", r.Reason)
		}
		return nil
	}
	return c
}

// watchDevices shows the devices again and again until ctx ends: in place on a terminal, one after the other elsewhere.
func (a *app) watchDevices(ctx context.Context, every time.Duration, asJSON, topology bool, look func() (*inventoryReport, error)) error {
	var redraw *screen.Redraw
	if !asJSON {
		redraw = screen.NewRedraw(a.Stdout)
	}
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		r, err := look()
		if err != nil {
			return err
		}
		now := time.Now().Truncate(time.Second)
		r.Time = &now
		switch {
		case asJSON:
			out := json.NewEncoder(a.Stdout)
			out.SetEscapeHTML(false)
			err = out.Encode(r)
		case redraw != nil:
			var text strings.Builder
			if err = printMoment(screen.Visible(&text), r, topology); err == nil {
				err = redraw.Show(text.String())
			}
		default:
			err = printMoment(a.Stdout, r, topology)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		}
	}
}

// printMoment is what --watch shows of one look.
func printMoment(to io.Writer, r *inventoryReport, topology bool) error {
	fmt.Fprintln(to, r.Time.Format(time.RFC3339))
	if r.Reason != "" {
		fmt.Fprintln(to, r.Reason)
	}
	if err := printInventory(to, r, topology); err != nil {
		return err
	}
	_, err := fmt.Fprintln(to)
	return err
}

func inspect(inventory *gpu.Inventory, links bool) (*inventoryReport, error) {
	r := &inventoryReport{Reason: inventory.Reason()}
	for _, d := range inventory.Devices() {
		entry := deviceReport{Device: d}
		status, err := inventory.Status(d.UUID)
		if err != nil {
			entry.Error = err.Error()
		}
		if err == nil || status.Health != nil {
			entry.Status = &status
		}
		r.Devices = append(r.Devices, entry)
	}
	if !links {
		return r, nil
	}
	var err error
	if r.Links, err = inventory.Links(); err != nil {
		return nil, fmt.Errorf("read the links between GPUs: %w", err)
	}
	return r, nil
}
