package sharing

import (
	"context"
	"fmt"
	"os"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/gpu/mps"
	"github.com/gpumux/gpumux/internal/logkey"
)

// timeSliced is sharing: default. The driver gives each process the device for a while.
type timeSliced struct{}

func (timeSliced) Check(u Use) []Problem   { return noThreads(u) }
func (timeSliced) Alone() bool             { return false }
func (timeSliced) Limits() string          { return "" }
func (timeSliced) Processes(slots int) int { return slots }

// Prepare hands on what the worker was given of an MPS daemon: without it the processes would miss a daemon that they have to use.
func (timeSliced) Prepare(_ context.Context, h *Host, u Use) (Share, error) {
	d := u.Devices[0]
	if d.Kind != gpu.KindGPU {
		return apart{handedOn(d)}, nil
	}
	if pipe := mps.Pipe(); mps.Listens(pipe) {
		h.Log.Warn("an MPS daemon is there, so processes that share a device share its faults too; sharing: mps knows that and handles them",
			zap.String(logkey.Device, d.UUID), zap.String("pipe", pipe))
	} else if u.Slots > 1 {
		h.Log.Info("slots share the device by the driver's time slices", zap.String(logkey.Device, d.UUID),
			zap.String(logkey.Advice, fmt.Sprintf("root can set their length: nvidia-smi compute-policy -i %s --set-timeslice=0..3", d.UUID)))
	}
	return apart{handedOn(d)}, nil
}

// handedOn is what the worker's environment says of a daemon, for a process that sees one device.
func handedOn(d gpu.Device) map[string]string {
	env := map[string]string{}
	if d.Kind != gpu.KindGPU {
		return env
	}
	for _, name := range []string{mps.PipeVariable, mps.ThreadsVariable} {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	if limit := mps.LimitOf(os.Getenv(mps.LimitVariable), d.Index, d.UUID); limit > 0 {
		env[mps.LimitVariable] = mps.Limit(limit)
	}
	return env
}
