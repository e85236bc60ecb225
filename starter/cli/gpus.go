package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/starter/cli/screen"
)

// deviceReport is one device with its state, as `gpumux gpus --json` prints it.
type deviceReport struct {
	gpu.Device
	Status *gpu.Status `json:"status,omitempty"`
	// Error says why the state could not be read.
	Error string `json:"error,omitempty"`
}

// inventoryReport is the answer of `gpumux gpus`.
type inventoryReport struct {
	Devices []deviceReport `json:"devices"`
	Links   []gpu.Link     `json:"links,omitempty"`
	// Reason says why there is no GPU, or which were left out.
	Reason string `json:"reason,omitempty"`
}

func (a *app) gpusCommand() *cobra.Command {
	var asJSON, topology bool
	c := &cobra.Command{
		Use:     "gpus",
		Short:   "Show this machine's devices: memory, MIG, processes, links",
		Example: "  gpumux gpus\n  gpumux gpus --topology\n  gpumux gpus --json | jq '.devices[].status.memory.free'",
		Args:    cobra.NoArgs,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON; sizes are in bytes")
	c.Flags().BoolVar(&topology, "topology", false, "show how the GPUs are linked")
	c.RunE = func(*cobra.Command, []string) error {
		inventory, err := gpu.Open(gpu.Options{})
		if err != nil {
			return unavailable(fmt.Errorf("list this machine's devices: %w", err))
		}
		defer inventory.Close()
		r, err := inspect(inventory, topology || asJSON)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(a.Stdout, r)
		}
		if err := printDevices(a.Stdout, r); err != nil {
			return err
		}
		if topology {
			if err := printLinks(a.Stdout, r); err != nil {
				return err
			}
		}
		if r.Reason != "" {
			a.console.Say("%s", r.Reason)
		}
		return nil
	}
	return c
}

func inspect(inventory *gpu.Inventory, links bool) (*inventoryReport, error) {
	r := &inventoryReport{Reason: inventory.Reason()}
	for _, d := range inventory.Devices() {
		entry := deviceReport{Device: d}
		if status, err := inventory.Status(d.UUID); err != nil {
			entry.Error = err.Error()
		} else {
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

// printDevices writes a row per device and, below, who holds memory on them.
func printDevices(to io.Writer, r *inventoryReport) error {
	rows := [][]string{{"DEVICE", "NAME", "MEMORY", "FREE", "BUSY", "TEMP", "UUID"}}
	for _, d := range r.Devices {
		row := []string{selector(d.Device), d.Name, sizeText(d.Memory), "-", "-", "-", d.UUID}
		if s := d.Status; s != nil {
			if s.Memory.Total > 0 {
				row[2], row[3] = sizeText(s.Memory.Total), sizeText(s.Memory.Free)
			}
			row[4], row[5] = known(s.Utilization, "%"), known(s.Temperature, "°C")
		}
		if d.MIG {
			row[1] += " (MIG: use its instances)"
		}
		if d.Error != "" {
			row[1] += " (" + screen.OneLine(d.Error, 80) + ")"
		}
		rows = append(rows, row)
	}
	if err := screen.Table(to, rows); err != nil {
		return err
	}
	holders := [][]string{{"DEVICE", "PID", "MEMORY", "PROCESS"}}
	for _, d := range r.Devices {
		if d.Status == nil || d.Kind == gpu.KindCPU {
			continue
		}
		for _, p := range d.Status.Processes {
			holders = append(holders, []string{selector(d.Device), strconv.Itoa(p.PID), sizeText(p.Memory), cmp.Or(p.Name, "-")})
		}
	}
	if len(holders) == 1 {
		return nil
	}
	fmt.Fprintln(to)
	return screen.Table(to, holders)
}

// printLinks writes the matrix of links.
func printLinks(to io.Writer, r *inventoryReport) error {
	var gpus []gpu.Device
	for _, d := range r.Devices {
		if d.Kind == gpu.KindGPU {
			gpus = append(gpus, d.Device)
		}
	}
	if len(gpus) < 2 {
		_, err := fmt.Fprintln(to, "\nno links: fewer than two GPUs")
		return err
	}
	rows := [][]string{{"LINK"}}
	for _, d := range gpus {
		rows[0] = append(rows[0], selector(d))
	}
	for _, from := range gpus {
		row := []string{selector(from)}
		for _, other := range gpus {
			row = append(row, linkText(r.Links, from.UUID, other.UUID))
		}
		rows = append(rows, row)
	}
	fmt.Fprintln(to)
	return screen.Table(to, rows)
}

// linkText is one cell: "nvlink×12", "sys", with a * where the two reach each other's memory.
func linkText(links []gpu.Link, from, to string) string {
	if from == to {
		return "."
	}
	i := slices.IndexFunc(links, func(l gpu.Link) bool {
		return l.From == from && l.To == to || l.From == to && l.To == from
	})
	if i < 0 {
		return "-"
	}
	text := links[i].Kind
	if links[i].NVLinks > 0 {
		text += "×" + strconv.Itoa(links[i].NVLinks)
	}
	if links[i].P2P {
		text += "*"
	}
	return text
}

// selector is the device as pools name it.
func selector(d gpu.Device) string {
	name, _, _ := strings.Cut(d.String(), " (")
	return name
}

func sizeText(n uint64) string {
	if n == 0 {
		return "-"
	}
	return gpumux.Size(n).String()
}

func known(n int, unit string) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n) + unit
}
