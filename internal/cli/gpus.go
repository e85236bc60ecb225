package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/report"
)

func gpusCommand(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "gpus",
		Short: "Show this machine's devices: memory, MIG, processes",
		Long: `Show this machine's devices: memory, MIG instances below their GPU, and who holds memory on them.
Details follow where there is something to say: a device that does not answer, MIG mode, a compute mode.
A pool's devices take the beginning of a UUID as well. Whether a device works, gpumux doctor tries.
docs/gpus.schema.json describes --json.`,
		Example: "  gpumux gpus\n  gpumux gpus --json | jq '.devices[].status.memory.free'",
		Args:    cobra.NoArgs,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		inventory, err := gpu.Open(c.Context(), gpu.Options{})
		if err != nil {
			return unavailable(fmt.Errorf("list this machine's devices: %w", err))
		}
		defer inventory.Close()
		r := inspectDevices(inventory)
		if asJSON {
			return printJSON(a.Stdout, r)
		}
		if err := r.print(a.Stdout); err != nil {
			return err
		}
		if r.Reason != "" {
			a.console.Say("%s", r.Reason)
		}
		return nil
	}
	return c
}

type deviceEntry struct {
	gpu.Device
	Status *gpu.Status `json:"status,omitempty"`
	// Error says why the state could not be read.
	Error string `json:"error,omitempty"`
}

// deviceReport is the answer of `gpumux gpus`; docs/gpus.schema.json describes it.
type deviceReport struct {
	Devices []deviceEntry `json:"devices"`
	// Reason says why there is no GPU, or which were left out.
	Reason string `json:"reason,omitempty"`
}

func inspectDevices(inventory *gpu.Inventory) *deviceReport {
	r := &deviceReport{Reason: inventory.Reason()}
	for _, d := range inventory.Devices() {
		entry := deviceEntry{Device: d}
		status, err := inventory.Status(d.UUID)
		if err != nil {
			entry.Error = err.Error()
		} else {
			entry.Status = &status
		}
		r.Devices = append(r.Devices, entry)
	}
	return r
}

func (r *deviceReport) print(to io.Writer) error {
	rows := [][]string{{"DEVICE", "NAME", "MEMORY", "FREE", "BUSY", "TEMP", "UUID"}}
	details := [][]string{{"DEVICE", "DETAIL"}}
	holders := [][]string{{"DEVICE", "PID", "MEMORY", "TYPE", "PROCESS"}}
	for _, d := range r.Devices {
		name := d.Selector()
		row := []string{name, report.OneLine(d.Name, 34), report.Known(gpumux.Size(d.Memory)), "-", "-", "-", d.UUID[:min(shortUUID, len(d.UUID))]}
		if d.Profile != "" {
			row[1] = "└ " + d.Profile
		}
		if s := d.Status; s != nil {
			if s.Memory.Total > 0 {
				row[2], row[3] = report.Known(gpumux.Size(s.Memory.Total)), report.Known(gpumux.Size(s.Memory.Free))
			}
			row[4], row[5] = orDash(s.Utilization, "%"), orDash(s.Temperature, "°C")
			for _, p := range s.Processes {
				holders = append(holders, []string{name, strconv.Itoa(p.PID), report.Known(gpumux.Size(p.Memory)), p.Type, cmp.Or(report.OneLine(p.Name, 64), "-")})
			}
		}
		rows = append(rows, row)
		for _, text := range detailsOf(d) {
			details = append(details, []string{name, text})
		}
	}
	for i, table := range [][][]string{rows, details, holders} {
		if len(table) == 1 {
			continue
		}
		if i > 0 {
			fmt.Fprintln(to)
		}
		if err := report.Table(to, table); err != nil {
			return err
		}
	}
	return nil
}

func detailsOf(d deviceEntry) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if d.Error != "" {
		say("%s", d.Error)
	}
	if d.Cores != "" {
		say("next to the processors %s", d.Cores)
	}
	if d.Links != "" {
		say("links to the GPUs: %s", d.Links)
	}
	if d.MIG {
		say("in MIG mode: work runs on its instances")
	}
	if s := d.Status; s != nil && s.ComputeMode != "" && s.ComputeMode != "default" {
		say("compute mode %s", s.ComputeMode)
	}
	return all
}

// shortUUID is the length of the beginning of a UUID; pools take it too.
const shortUUID = len("GPU-01234567")

func orDash(n int, unit string) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n) + unit
}
