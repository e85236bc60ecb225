package sharing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/mps"
)

// checkMPS is Check of MPS.
func (l *problems) checkMPS(u Use) {
	add := l.add
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
	pipe, named := mps.Pipe(), os.Getenv(mps.PipeVariable) != ""
	_, lacking := exec.LookPath(mps.Program)
	switch {
	case runtime.GOOS != "linux":
		add("sharing", "mps, which exists on Linux only; %s", instead)
	case named && !mps.Listens(pipe):
		add("sharing", "mps, but %s=%s has no daemon; start it, or take the variable away so that the worker starts its own",
			mps.PipeVariable, pipe)
	case lacking != nil && !mps.Listens(pipe):
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
	if err := s.daemon.Limits(ctx); errors.Is(err, mps.ErrCommand) {
		return nil, fmt.Errorf("sharing: mps on %s: the MPS daemon of driver %s is too old to keep a process to its memory, or to let go of one "+
			"that is killed; 535 is the oldest that was seen to; update the driver, or use sharing: default", d, d.Driver)
	}
	c := clients{server: s, device: d, threads: share(u), inherited: map[string]string{}}
	if !s.ours {
		c.inherited = handedOn(d)
	}
	return c, h.prove(ctx, d, u.Memory, c.Env(u.Memory, false))
}

// share is a slot's percentage of the multiprocessors: twice an equal part, as
// NVIDIA advises, so that others use what one leaves idle. With slots: auto it is all.
func share(u Use) int {
	if u.Auto {
		return 100
	}
	return int(min(100, math.Round(200/float64(u.Slots))))
}

// clients are the slots of one pool on a server.
type clients struct {
	*server
	device    gpu.Device
	threads   int
	inherited map[string]string
}

// Env names the server and sets the limits, beside those set for the worker.
func (c clients) Env(memory gpumux.Size, whole bool) map[string]string {
	env := maps.Clone(c.inherited)
	env[mps.PipeVariable] = c.daemon.Pipe
	inherited := mps.LimitOf(env[mps.LimitVariable], 0, "")
	if limit := uint64(memory); limit > 0 && (inherited == 0 || limit < inherited) {
		env[mps.LimitVariable] = mps.Limit(limit)
	}
	limit, _ := strconv.ParseFloat(env[mps.ThreadsVariable], 64)
	if threads := float64(c.threads); !whole && threads < 100 && (limit == 0 || threads < limit) {
		env[mps.ThreadsVariable] = strconv.Itoa(c.threads)
	}
	return env
}

func (clients) MPS() bool { return true }

// prove checks the memory limit in a process with a slot's environment.
func (h *Host) prove(ctx context.Context, d gpu.Device, memory gpumux.Size, env map[string]string) error {
	if memory == 0 || h.Probe == nil {
		return nil
	}
	free, untried := h.Probe(ctx, d.UUID, env)
	switch {
	case untried != "":
		h.Log.Warn("whether the MPS server keeps processes to their memory was not tried", zap.String("device", d.UUID),
			zap.String("why", untried))
	case free > uint64(memory):
		return fmt.Errorf("sharing: mps on %s: the limit of %s per process is not in force, since CUDA gave one %s; memory limits of MPS need "+
			"driver 535 or newer and Volta or newer; update, or use sharing: default", d, memory, gpumux.Size(free))
	case free > 0:
		h.Log.Info("the MPS server keeps processes to their memory", zap.String("device", d.UUID), zap.Stringer("limit", memory),
			zap.Stringer("free", gpumux.Size(free)))
	}
	return nil
}
