package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/screen"
)

// Device is one device with its state, as `gpumux gpus --json` prints it.
type Device struct {
	gpu.Device
	// Status of a device that is lost or silent has its health and no more.
	Status *gpu.Status `json:"status,omitempty"`
	// Error says why the state could not be read.
	Error string `json:"error,omitempty"`
}

// Report is what `gpumux gpus` answers; docs/gpus.schema.json describes it.
type Report struct {
	// Time is when the devices were looked at, with --watch.
	Time    *time.Time `json:"time,omitempty"`
	Devices []Device   `json:"devices"`
	Links   []gpu.Link `json:"links,omitempty"`
	// Reason says why there is no GPU, or which were left out.
	Reason string `json:"reason,omitempty"`
}

// Inspect looks at all devices, and at the links between GPUs if asked.
func Inspect(inventory *gpu.Inventory, links bool) (*Report, error) {
	r := &Report{Reason: inventory.Reason()}
	for _, d := range inventory.Devices() {
		entry := Device{Device: d}
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

// Print writes the devices, details of some, who holds memory, and if asked the links.
func (r *Report) Print(to io.Writer, links bool) error {
	if err := r.printDevices(to); err != nil || !links {
		return err
	}
	return r.printLinks(to)
}

func (r *Report) printDevices(to io.Writer) error {
	rows := [][]string{{"DEVICE", "NAME", "MEMORY", "FREE", "BUSY", "TEMP", "HEALTH", "UUID"}}
	details := [][]string{{"DEVICE", "DETAIL"}}
	holders := [][]string{{"DEVICE", "PID", "MEMORY", "TYPE", "PROCESS"}}
	for _, d := range r.Devices {
		name := Selector(d.Device)
		row := []string{name, screen.OneLine(d.Name, 34), sizeText(d.Memory), "-", "-", "-", "-", shortUUID(d.UUID, r.Devices)}
		if d.Profile != "" {
			row[1] = "└ " + d.Profile
		}
		if s := d.Status; s != nil {
			if s.Memory.Total > 0 {
				row[2], row[3] = sizeText(s.Memory.Total), sizeText(s.Memory.Free)
			}
			row[4], row[5], row[6] = known(s.Utilization, "%"), known(s.Temperature, "°C"), healthText(s.Health)
			for _, p := range s.Processes {
				holders = append(holders, []string{name, strconv.Itoa(p.PID), sizeText(p.Memory), p.Type, cmp.Or(screen.OneLine(p.Name, 64), "-")})
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
		if err := screen.Table(to, table); err != nil {
			return err
		}
	}
	return nil
}

// healthText is what a device needs in a word.
func healthText(h *gpu.Health) string {
	switch {
	case h == nil:
		return "-"
	case h.Reason == gpu.ReasonLost || h.Reason == gpu.ReasonSilent:
		return string(h.Reason)
	case h.Action == gpu.ActionNone:
		return "ok"
	}
	return string(h.Action)
}

func detailsOf(d Device) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if d.Error != "" {
		say("%s", d.Error)
	}
	if d.MIG {
		say("in MIG mode: work runs on its instances")
	}
	s := d.Status
	if s == nil {
		return all
	}
	if h := s.Health; h != nil && h.Action.Cordon() && d.Kind == gpu.KindGPU {
		hint := h.Action.HintFor(d.UUID)
		switch h.Reason {
		case gpu.ReasonRecovery:
			say("the driver asks for: %s; %s", h.Action, hint)
		case gpu.ReasonRowRemap:
			say("a remapped row waits for a reset; %s", hint)
		}
	}
	if e := s.ECC; e != nil {
		if !e.Enabled {
			say("ECC is off")
		}
		if e.Volatile != nil && *e.Volatile > 0 {
			say("ECC: %d uncorrectable errors since the driver was loaded", *e.Volatile)
		}
		if e.Aggregate != nil && *e.Aggregate > 0 {
			say("ECC: %d uncorrectable errors in its life", *e.Aggregate)
		}
	}
	if m := s.RemappedRows; m != nil && *m != (gpu.RemappedRows{}) {
		text := fmt.Sprintf("remapped rows: %d after correctable errors, %d after uncorrectable ones", m.Correctable, m.Uncorrectable)
		if m.Pending {
			text += "; one waits for a reset"
		}
		if m.Failed {
			text += "; once there was no spare row"
		}
		say("%s", text)
	}
	if s.ComputeMode != "" && s.ComputeMode != "default" {
		say("compute mode %s", s.ComputeMode)
	}
	switch s.MPS {
	case "server":
		say("an MPS server has it")
	case "daemon":
		say("an MPS daemon is where CUDA looks for one, and may serve it")
	}
	if s.TimeSliced > 0 {
		say("%d processes take turns on it", s.TimeSliced)
	}
	return all
}

// shortUUID is the beginning of a UUID that is nobody else's; pools take it too.
func shortUUID(uuid string, all []Device) string {
	blocks := strings.Split(uuid, "-")
	for n := 2; n < len(blocks); n++ {
		short := strings.Join(blocks[:n], "-")
		another := func(d Device) bool { return d.UUID != uuid && strings.HasPrefix(d.UUID, short) }
		if !slices.ContainsFunc(all, another) {
			return short
		}
	}
	return uuid
}

func (r *Report) printLinks(to io.Writer) error {
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
		rows[0] = append(rows[0], Selector(d))
	}
	for _, from := range gpus {
		row := []string{Selector(from)}
		for _, other := range gpus {
			row = append(row, linkText(r.Links, from.UUID, other.UUID))
		}
		rows = append(rows, row)
	}
	fmt.Fprintln(to)
	return screen.Table(to, rows)
}

// linkText is one cell: "nvlink×12", "sys"; * for access to each other's memory.
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

// Selector is the device as pools name it.
func Selector(d gpu.Device) string {
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

// Watch shows the devices until ctx ends, in place on a terminal.
func Watch(ctx context.Context, to io.Writer, every time.Duration, asJSON, links bool, look func() (*Report, error)) error {
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
			out := json.NewEncoder(to)
			out.SetEscapeHTML(false)
			err = out.Encode(r)
		default:
			err = r.printMoment(to, links)
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

func (r *Report) printMoment(to io.Writer, links bool) error {
	fmt.Fprintln(to, r.Time.Format(time.RFC3339))
	if r.Reason != "" {
		fmt.Fprintln(to, r.Reason)
	}
	if err := r.Print(to, links); err != nil {
		return err
	}
	_, err := fmt.Fprintln(to)
	return err
}
