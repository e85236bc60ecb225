// Package gpu owns the connection to the NVIDIA driver's library (NVML), what is known of
// this host's devices (GPUs, MIG instances, the CPU), and the resident memory of process
// trees. It never starts or ends a process, changes a device, or decides whether one
// works. An Inventory stops when it is closed.
//
// NVML needs cgo and Linux; other builds list the CPU only. Do not link such a binary
// statically or with immediate binding (-z now, LD_BIND_NOW): its symbols stay open until
// the library is loaded. A process loads one NVML library and keeps it.
package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
)

// Kind says what a device is.
type Kind string

// The kinds of device.
const (
	KindGPU Kind = "gpu" // a whole GPU
	KindMIG Kind = "mig" // a MIG instance of a GPU
	KindCPU Kind = "cpu" // the host: its processors and its memory
)

// CPU is the UUID of the host's CPU device.
const CPU = "CPU"

var (
	// ErrLost marks a device that the driver cannot reach, or that must be reset.
	ErrLost = errors.New("device lost")
	// ErrSilent marks a device about which the driver has not answered in time.
	ErrSilent = errors.New("the driver has not answered")
	// ErrUnknown marks a UUID or selector that names no device of the inventory.
	ErrUnknown = errors.New("unknown device")
	// ErrClosed is returned by the methods of a closed Inventory.
	ErrClosed = errors.New("gpu: the inventory is closed")
)

// Device is one device as it was when the Inventory was opened.
type Device struct {
	// Index is the driver's number of the GPU (PCI order, as nvidia-smi prints it).
	// A MIG instance has the index of its GPU; the CPU has -1.
	Index int `json:"index"`
	// Instance is the number of a MIG instance on its GPU; numbers may have holes.
	Instance int    `json:"instance,omitempty"`
	Kind     Kind   `json:"kind"`
	UUID     string `json:"uuid"`
	Name     string `json:"name"`
	// PCI is the bus address, such as 00000000:07:00.0. Empty for the CPU.
	PCI string `json:"pci,omitempty"`
	// Cores are the processors next to a GPU, such as 0-31,64-95. Links are how it reaches
	// each GPU by index, such as "X NVL PHB SYS": nvidia-smi's words, but NVL for NVLinks.
	// Empty where nobody tells.
	Cores string `json:"cores,omitempty"`
	Links string `json:"links,omitempty"`
	// Parent is the UUID of a MIG instance's GPU, Profile its kind, such as 1g.10gb, if
	// known.
	Parent  string `json:"parent,omitempty"`
	Profile string `json:"profile,omitempty"`
	// Memory is the total in bytes; 0 when the driver does not tell.
	Memory uint64 `json:"memory"`
	// Reserved stays with the driver, out of Memory; 0 when it does not tell.
	Reserved uint64 `json:"reserved,omitempty"`
	// ComputeCapability is such as 8.0, Driver such as 550.54.15, and CUDA the newest
	// version that the driver runs, such as 12.4. Empty where unknown.
	ComputeCapability string `json:"computeCapability,omitempty"`
	Driver            string `json:"driver,omitempty"`
	CUDA              string `json:"cuda,omitempty"`
	// MIG: the GPU is split. Work runs on its instances, which follow it in the list.
	MIG bool `json:"mig,omitempty"`
}

// Near are the numbers of the processors next to it, or nil.
func (d Device) Near() (cores []int) {
	for part := range strings.SplitSeq(d.Cores, ",") {
		var from, to int
		if n, _ := fmt.Sscanf(part, "%d-%d", &from, &to); n == 0 || to > maxCores {
			return nil
		}
		for to = max(from, to); from <= to; from++ {
			cores = append(cores, from)
		}
	}
	return cores
}

// maxCores is what a set of processors has room for.
const maxCores = 1023

var links = []string{"X", "NVL", "PSB", "PIX", "PXB", "PHB", "NODE", "SYS"} // the shortest first

// Distance grows with the way to another GPU; an unknown one is the farthest.
func (d Device) Distance(other Device) int {
	if words := strings.Fields(d.Links); other.Index >= 0 && other.Index < len(words) {
		if at := slices.Index(links, words[other.Index]); at >= 0 {
			return at
		}
	}
	return len(links)
}

// Available is the memory in bytes that processes can have in all; 0 when unknown.
func (d Device) Available() uint64 { return d.Memory - min(d.Memory, d.Reserved) }

// Usable reports whether work can run there: a GPU in MIG mode only holds instances.
func (d Device) Usable() bool { return !d.MIG }

// String names the device for people: its selector, UUID and name.
func (d Device) String() string {
	if d.Kind == KindCPU {
		return fmt.Sprintf("cpu (%s)", d.Name)
	}
	return fmt.Sprintf("%s (%s, %s)", d.Selector(), d.UUID, d.Name)
}

// Selector is the short form that Select understands: "0", or "0:1" for a MIG instance.
func (d Device) Selector() string {
	switch d.Kind {
	case KindCPU:
		return "cpu"
	case KindMIG:
		return strconv.Itoa(d.Index) + ":" + strconv.Itoa(d.Instance)
	default:
		return strconv.Itoa(d.Index)
	}
}

// Memory is the memory of a device in bytes; all zero when the driver does not tell.
type Memory struct {
	Total uint64 `json:"total"`
	// Free can be allocated now.
	Free uint64 `json:"free"`
	// Used is Total minus Free, so it includes what the driver keeps for itself.
	Used uint64 `json:"used"`
	// Reserved stays with the driver; 0 when it does not tell.
	Reserved uint64 `json:"reserved,omitempty"`
}

// Held is the memory of all processes, whosever they are.
func (m Memory) Held() uint64 { return m.Used - min(m.Used, m.Reserved) }

// Process is one process that holds memory on a device.
type Process struct {
	// PID is the driver's number. On the host it is ours too. In a container with numbers of
	// its own, drivers from 565.57 on translate it and leave out what the container does
	// not see; those from 535.113 on list its processes with 0 bytes, older ones tell the
	// host's.
	PID  int    `json:"pid"`
	Name string `json:"name,omitempty"`
	// Type is how it uses the device: compute, mps (a client of the MPS server) or graphics.
	Type string `json:"type"`
	// Memory is in bytes; 0 means unknown.
	Memory uint64 `json:"memory"`
}

// Status is the state of a device now.
type Status struct {
	Memory Memory `json:"memory"`
	// Utilization is in percent of time with work running; -1 when unknown.
	Utilization int `json:"utilization"`
	// Temperature is in degrees Celsius; -1 when unknown.
	Temperature int `json:"temperature"`
	// Power is in watts; -1 when unknown.
	Power float64 `json:"power"`
	// ComputeMode is default, exclusive_process, exclusive_thread, prohibited or unknown
	// ("").
	ComputeMode string `json:"computeMode,omitempty"`
	// Processes is nil when the driver does not tell, and empty when there are none.
	Processes []Process `json:"processes"`
}

// Load is what a GPU does now.
type Load struct {
	// Computing is the share of the driver's last sample, a second or less, in which a
	// kernel ran; 0 to 1.
	Computing float64
	// Power is in watts; -1 when unknown.
	Power float64
	// Energy is in joules since the driver was loaded; 0 when it does not tell.
	Energy float64
	// Slowed: its clocks are lowered for heat, or because power fails.
	Slowed bool
}

// Largest names the largest processes in parentheses; it is empty where there are none.
func Largest(all []Process) string {
	all = slices.SortedFunc(slices.Values(all), func(a, b Process) int { return cmp.Compare(b.Memory, a.Memory) })
	var who []string
	for _, p := range all[:min(len(all), 3)] {
		one := strings.TrimSpace(fmt.Sprintf("process %d %s", p.PID, p.Name))
		if p.Memory > 0 {
			one += " " + gpumux.Size(p.Memory).String()
		}
		who = append(who, one)
	}
	if len(who) == 0 {
		return ""
	}
	return " (" + strings.Join(who, ", ") + ")"
}

// unknown is the status of a silent device.
func unknown() Status { return Status{Utilization: -1, Temperature: -1, Power: -1} }

func cpuDevice() Device {
	m, _ := thisHost.memory()
	return Device{Index: -1, Kind: KindCPU, UUID: CPU, Name: cmp.Or(thisHost.cpuName(), runtime.GOARCH+" processor"), Memory: m.Total}
}

// cpuStatus is the host's memory, within the device's own total.
func cpuStatus(d Device) (Status, error) {
	m, err := thisHost.memory()
	if err != nil {
		return unknown(), fmt.Errorf("gpu: memory of the host: %w", err)
	}
	if d.Memory > 0 && d.Memory < m.Total {
		m = Memory{Total: d.Memory, Free: min(m.Free, d.Memory)}
		m.Used = m.Total - m.Free
	}
	s := unknown()
	s.Memory = m
	return s, nil
}
