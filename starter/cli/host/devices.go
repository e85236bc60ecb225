package host

import (
	"fmt"
	"time"

	"github.com/gpumux/gpumux/gpu"
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
