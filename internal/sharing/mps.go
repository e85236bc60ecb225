package sharing

import (
	"context"
	"maps"
	"math"
	"os/exec"
	"strconv"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/mps"
)

func checkMPS(u Use, add func(field, format string, args ...any)) {
	const instead = "use sharing: default"
	for _, d := range u.Devices {
		switch d.Kind {
		case gpu.KindMIG:
			add("sharing", "mps, but %s is a MIG instance, on which MPS does not keep to limits; use sharing: mig, or default", d)
		case gpu.KindCPU:
			add("sharing", "mps, but %s is no GPU; leave sharing out", d)
		}
	}
	if u.PerSlot > 1 {
		add("gpus_per_slot", "%d with sharing: mps, whose server is one per GPU; leave gpus_per_slot out, or %s", u.PerSlot, instead)
	}
	if _, err := exec.LookPath(mps.Program); err != nil && !mps.Listens(mps.Pipe()) {
		add("sharing", "mps, but %s is not in PATH; install it with the driver (Debian, Ubuntu: nvidia-compute-utils), or %s",
			mps.Program, instead)
	}
}

func (h *Host) prepareMPS(ctx context.Context, u Use) (Share, error) {
	d := u.Devices[0]
	s, err := h.server(ctx, d)
	if err != nil {
		return nil, err
	}
	c := clients{server: s, threads: share(u), inherited: map[string]string{}}
	if !s.ours {
		c.inherited = handedOn(d)
	}
	return c, nil
}

// share is a slot's percentage of the multiprocessors: twice an equal part, as
// NVIDIA advises, so that others use what one leaves idle. With slots: auto it is all.
func share(u Use) int {
	if u.Auto {
		return 100
	}
	return int(min(100, math.Round(200/float64(u.Slots))))
}

type clients struct {
	*server
	threads   int
	inherited map[string]string
}

// Env names the server and sets the limits, in place of those set for the worker.
func (c clients) Env(memory gpumux.Size, whole bool) map[string]string {
	env := maps.Clone(c.inherited)
	env[mps.PipeVariable] = c.daemon.Pipe
	if memory > 0 {
		env[mps.LimitVariable] = mps.Limit(uint64(memory))
	}
	if !whole && c.threads < 100 && env[mps.ThreadsVariable] == "" {
		env[mps.ThreadsVariable] = strconv.Itoa(c.threads)
	}
	return env
}

func (clients) MPS() bool { return true }
