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

// Mode is one way to share a device; "" is Default.
type Mode string

// The modes.
const (
	Default   Mode = "default"   // the driver gives each process the device for a while
	Exclusive Mode = "exclusive" // one slot owns the device
	MPS       Mode = "mps"       // kernels of all processes run side by side through one server
	MIG       Mode = "mig"       // each slot has a part of the hardware, as somebody has laid it out
)

// Check lists what cannot work, by fields of the pool. It starts nothing.
func (m Mode) Check(u Use) []Problem {
	var list problems
	const instead = "an exclusive device has 1 slot, so %s or use sharing: default"
	if m == MPS {
		list.checkMPS(u)
	} else if u.Threads > 0 {
		list.add("threads", "%d%% without sharing: mps; nothing else keeps a process to a share of the multiprocessors", u.Threads)
	}
	switch {
	case m == "" || m == Default || m == MPS:
	case m == Exclusive && u.Auto:
		list.add("slots", "auto with sharing: exclusive; "+instead, "leave slots out")
	case m == Exclusive && u.Slots > 1:
		list.add("slots", "%d slots with sharing: exclusive; "+instead, u.Slots, "lower slots")
	case m == Exclusive:
	case m == MIG:
		for _, d := range u.Devices {
			if d.Kind != gpu.KindMIG {
				list.add("devices", "%s is no MIG instance; leave it out, or lay it out: nvidia-smi -i %s -mig 1, "+
					"then nvidia-smi mig -cgi <profile> -C", d, d.UUID)
			}
		}
	default:
		list.add("sharing", "%q is unknown; use default, exclusive, mig, mps", string(m))
	}
	return list
}

type problems []Problem

func (l *problems) add(field, format string, args ...any) {
	*l = append(*l, Problem{field, fmt.Sprintf(format, args...)})
}

// Prepare makes a slot's devices ready for processes. It hands on what the worker was given of an MPS
// daemon: without it, processes would miss a daemon that they have to use.
func (m Mode) Prepare(ctx context.Context, h *Host, u Use) (Share, error) {
	d := u.Devices[0]
	switch {
	case m == MPS:
		return h.prepareMPS(ctx, u)
	case m == Exclusive || m == MIG || d.Kind != gpu.KindGPU:
	case mps.Listens(mps.Pipe()):
		h.Log.Warn("an MPS daemon is there, so processes that share a device share its faults too; sharing: mps knows that and handles them",
			zap.String(logkey.Device, d.UUID), zap.String("pipe", mps.Pipe()))
	case u.Slots > 1:
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
