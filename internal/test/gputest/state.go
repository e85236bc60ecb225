package gputest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// State describes a machine. The zero value is a driver without GPUs.
type State struct {
	Driver string // default 580.65.06
	CUDA   int    // default 13000, which is 13.0
	Init   int    // code that nvmlInit returns; default 0, success
	GPUs   []GPU
	// PIDShift is the driver's process numbers less this host's, as in a sandbox.
	PIDShift int
	// Lists is how the driver lists processes. Default: with what they hold.
	Lists string
}

// GPU is one GPU. Change it in place: handles depend on the order of GPUs and instances.
type GPU struct {
	UUID string // default GPU-00000000-0000-0000-0000-00000000000N
	Name string // default NVIDIA Test GPU
	// Total and Free are bytes; default 16 GiB, all free but Reserved.
	Total, Free, Reserved uint64
	Utilization           int  // percent
	Temperature           int  // degrees Celsius
	Milliwatts            int  // its energy is as if it had always taken that
	Throttle              int  // NVML's reasons for low clocks
	Lost                  bool // every call about it fails
	Slow                  int  // milliseconds that NVML takes for each call about it
	Mode                  int  // compute mode: 0 default, 2 prohibited, 3 exclusive process
	Sick                  Sick // how CUDA fails on it; NVML sees nothing of that
	MIG                   bool // implied by Instances
	Instances             []Instance
	Processes             []Process
}

// Sick has the CUDA error codes of a device that fails: of cuInit, and of making a
// context, allocating and copying there. Hangs is a call that does not return.
type Sick struct{ Init, Context, Alloc, Copy int }

// Hangs is the code of a call that does not return.
const Hangs = -1

// Instance is a MIG instance.
type Instance struct {
	Number      int    // its number on the GPU; numbers may have holes
	UUID        string // default MIG-00000000-0000-0000-000G-00000000000N
	Name        string // default NVIDIA Test GPU MIG 1g.5gb
	Total, Free uint64 // bytes; default 5 GiB, all free
	Processes   []Process
}

// Process holds memory on a device, whether it lives or not.
type Process struct {
	PID    int
	Memory uint64 // bytes; Unknown for a driver that does not tell
	Type   string // compute, mps or graphics; default compute
}

// Values of State.Lists: a driver that lists all processes with 0 bytes, as in a
// container before 565.57, or with memory that it does not know, or that lists none.
const (
	ZeroBytes    = "zero"
	UnknownBytes = "unknown"
	NoProcesses  = "none"
)

// Unknown is the driver's number for memory it does not know.
const Unknown = ^uint64(0)

// complete fills in the defaults, in a copy.
func (s State) complete() State {
	s.Driver, s.CUDA = cmp.Or(s.Driver, "580.65.06"), cmp.Or(s.CUDA, 13000)
	s.GPUs = slices.Clone(s.GPUs)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.UUID = cmp.Or(g.UUID, fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i))
		g.Name = cmp.Or(g.Name, "NVIDIA Test GPU")
		if g.Total == 0 {
			g.Total, g.Free = 16<<30, 16<<30-g.Reserved
		}
		g.Instances = slices.Clone(g.Instances)
		g.MIG = g.MIG || len(g.Instances) > 0
		for k := range g.Instances {
			m := &g.Instances[k]
			m.UUID = cmp.Or(m.UUID, fmt.Sprintf("MIG-00000000-0000-0000-%04d-%012d", i, m.Number))
			m.Name = cmp.Or(m.Name, g.Name+" MIG 1g.5gb")
			if m.Total == 0 {
				m.Total, m.Free = 5<<30, 5<<30
			}
		}
	}
	return s
}

// text is the state in the library's format, which its source describes.
func (s State) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("init %d", s.Init)
	line("driver %s", s.Driver)
	line("cuda %d", s.CUDA)
	line("shift %d", s.PIDShift)
	line("lists %s", cmp.Or(s.Lists, "all"))
	processes := func(uuid string, list []Process) {
		for _, p := range list {
			memory := fmt.Sprint(p.Memory)
			if p.Memory == Unknown {
				memory = "unknown"
			}
			line("process %s %d %s %s", uuid, p.PID, memory, cmp.Or(p.Type, "compute"))
		}
	}
	for _, g := range s.GPUs {
		line("gpu %s %d %d %d %d %d %d %d %s", g.UUID, g.Total, g.Free, g.Utilization, g.Temperature,
			g.Milliwatts, number(g.Lost), number(g.MIG), g.Name)
		line("reserved %s %d", g.UUID, g.Reserved)
		processes(g.UUID, g.Processes)
	}
	// Instances come last, so that the bus numbers of GPUs do not depend on them.
	for _, g := range s.GPUs {
		for _, m := range g.Instances {
			line("mig %s %d %s %d %d %s", g.UUID, m.Number, m.UUID, m.Total, m.Free, m.Name)
			processes(m.UUID, m.Processes)
		}
	}
	for _, g := range s.GPUs {
		line("mode %s %d", g.UUID, g.Mode)
		line("slow %s %d", g.UUID, g.Slow)
		line("throttle %s %d", g.UUID, g.Throttle)
		for call, code := range map[string]int{"init": g.Sick.Init, "context": g.Sick.Context, "alloc": g.Sick.Alloc, "copy": g.Sick.Copy} {
			if code != 0 {
				line("sick %s %s %d", g.UUID, call, code)
			}
		}
	}
	return b.String()
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
