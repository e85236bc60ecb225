// Package bench measures what gpumux costs and gains on this machine, beside bare
// processes that run the same function.
//
// It owns the workloads with their Python file, the bare processes, the rounds, and the
// report as a table, JSON and HTML. It never starts a Temporal server: the caller gives
// one that no other gpumux worker serves. Run returns when everything it started has
// ended: bare processes, workers, maps, slots.
//
// # How it measures
//
// A stage measures one workload in one pool. In each round the slots, as many bare
// processes, and one bare process alone run a piece of half a second each. The process
// alone is the unshared device. Every other round goes backwards, so that other work on
// the machine hits all alike, and shares are computed within a round.
//
// The throughput of a piece is that of its steady state, while all slots have work. A
// piece of slots is a map with one chunk per slot; what a map takes before its first item
// and after its last one is its fixed cost and stands apart. Advice follows only where
// the quartiles of the rounds lie apart.
package bench

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/store"
)

// Options of Run. Python, Framework, Pool, Clients, Limit, Workloads and Log have
// defaults.
type Options struct {
	// Starter is of a server that no other gpumux worker serves; Run gives it a store.
	Starter *starter.Starter
	// Folder takes the task file and the store. It must exist; the caller removes it.
	Folder string
	// Python runs the workloads, in slots and bare. Default python3.
	Python string
	// Framework is one of Frameworks. Default: the first that reaches a GPU, else the
	// first that is there.
	Framework string
	// Pool is gpu or cpu. Default: the GPU where a framework reaches one, and the CPU
	// beside it; else the CPU.
	Pool string
	// Clients are the numbers of slots that share the device, in ascending order and 1
	// among them. Default: 1, and 4 on a GPU; on the CPU one per processor, at most 4.
	Clients []int
	// Limit bounds a workload in one pool. Default: 30 s; 10 s when Quick.
	Limit time.Duration
	// Workloads are names of Workloads. Default: all of them, but without heavy when
	// Quick.
	Workloads []string
	// Sharing are the ways to share the device, of Sharings, that are measured where this
	// machine allows them; default always is, since the others are compared with it.
	// Default: all.
	Sharing []string
	// NoFresh leaves the fresh slots out.
	NoFresh bool
	// Quick makes pieces short and rounds few.
	Quick bool
	// Version is reported.
	Version string
	// Say is told what is measured next.
	Say func(text string)
	// Keep is given the report after each stage, so that a run that is ended leaves what it
	// has measured; an error of it ends the run.
	Keep func(*Report) error
	// Hard ends the waiting for an orderly end after the context of Run has ended.
	Hard context.Context
	// Log is the worker's. Default: none.
	Log *zap.Logger
}

type bench struct {
	Options
	storeURL  string
	inventory *gpu.Inventory
	// on is the device that is measured, cpu the CPU beside it or nil.
	on, cpu *target
	// around is the environment of a slot among so many, which bare processes get too:
	// other threads or libraries would make the comparison one of environments.
	around map[int]map[string]string
	report *Report
}

// Run measures. Its errors are *LackingError when this machine lacks something, and the
// cause of ctx when that ended.
func Run(ctx context.Context, o Options) (*Report, error) {
	began := time.Now()
	if o.Limit == 0 && o.Quick {
		o.Limit = 10 * time.Second
	}
	o.Limit, o.Python = cmp.Or(o.Limit, 30*time.Second), cmp.Or(o.Python, "python3")
	if len(o.Workloads) == 0 {
		o.Workloads = Workloads
		if o.Quick {
			o.Workloads = Workloads[1:]
		}
	}
	b := &bench{Options: o, around: map[int]map[string]string{}, report: &Report{Version: o.Version, Quick: o.Quick}}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	defer b.inventory.Close()
	stored, err := store.Open(ctx, b.storeURL, nil)
	if err != nil {
		return nil, err
	}
	defer stored.Close()
	b.Starter.Store = stored
	if err := b.measure(ctx); err != nil {
		return nil, err
	}
	b.report.Took = time.Since(began)
	b.report.advise()
	return b.report, b.Keep(b.report)
}

// prepare finds what the runs need. The caller closes the inventory.
func (b *bench) prepare(ctx context.Context) (err error) {
	b.Say("looking at Python and devices")
	b.storeURL = (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(b.Folder, "store"))}).String()
	if err = os.WriteFile(b.task(), []byte(python), 0o644); err != nil {
		return fmt.Errorf("write the workloads: %w", err)
	}
	if b.inventory, err = gpu.Open(ctx, gpu.Options{}); err != nil {
		return &LackingError{fmt.Sprintf("list this machine's devices: %v", err)}
	}
	if err = b.choose(ctx); err != nil {
		b.inventory.Close()
		return err
	}
	if len(b.Clients) == 0 {
		b.Clients = []int{1, maxSlots}
		if !b.on.gpu() {
			b.Clients = slices.Compact([]int{1, cpuSlots()})
		}
	}
	b.report.Machine = Machine{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0), GPU: b.on.gpu(), Python: b.on.Python,
		Device: cmp.Or(b.on.Name, b.on.device.Name), Framework: strings.TrimSpace(b.on.Framework + " " + b.on.Version),
	}
	return nil
}

func (b *bench) measure(ctx context.Context) error {
	seats := b.seats()
	for _, workload := range b.Workloads {
		for _, at := range seats {
			if workload == "oom" && at.sharing != timeSliced {
				continue
			}
			if err := b.runStage(ctx, workload, at); err != nil {
				return err
			}
			if err := b.Keep(b.report); err != nil {
				return err
			}
		}
	}
	return nil
}

// The ways to share a device, as pools name them.
const timeSliced, mps, mig = "default", "mps", "mig"

// Sharings are the ways to share a device that can be measured.
var Sharings = []string{timeSliced, mps, mig}

const maxSlots = 4

func cpuSlots() int { return min(runtime.GOMAXPROCS(0), maxSlots) }

func (b *bench) maxClients() int { return b.Clients[len(b.Clients)-1] }

// seat is a pool that is measured in one way.
type seat struct {
	way     Way
	sharing string
	on      *target
	slots   int // of each device
	devices []string
}

func (s seat) clients() int { return s.slots * len(s.devices) }

func (b *bench) newSeat(sharing string, clients int) seat {
	if clients == 1 {
		return seat{Sequential, sharing, b.on, 1, []string{b.on.device.UUID}}
	}
	return seat{Persistent, sharing, b.on, clients, []string{b.on.device.UUID}}
}

func (b *bench) seats() (seats []seat) {
	for _, clients := range b.Clients {
		seats = append(seats, b.newSeat(timeSliced, clients))
	}
	if !b.NoFresh {
		fresh := b.newSeat(timeSliced, b.maxClients())
		fresh.way = Fresh
		seats = append(seats, fresh)
	}
	b.lacks("exclusive", "one slot has the device to itself, as 1 client has here")
	var instances []string
	for _, d := range b.inventory.Devices() {
		if d.Kind == gpu.KindMIG {
			instances = append(instances, d.UUID)
		}
	}
	for _, name := range Sharings[1:] {
		if len(b.Sharing) > 0 && !slices.Contains(b.Sharing, name) {
			continue
		}
		if why := b.refused(name); why != "" {
			b.lacks(name, why)
			continue
		}
		for _, clients := range b.Clients {
			at := b.newSeat(name, clients)
			if name == mig && clients > len(instances) {
				b.lacks(mig, fmt.Sprintf("%d clients need as many instances, and there are %d", clients, len(instances)))
				break
			} else if name == mig {
				at.slots, at.devices = 1, instances[:clients]
			}
			seats = append(seats, at)
		}
	}
	if b.cpu != nil {
		seats = append(seats, seat{OnCPU, timeSliced, b.cpu, cpuSlots(), []string{b.cpu.device.UUID}})
	}
	return seats
}

// refused says why the device cannot be shared so, or nothing.
func (b *bench) refused(name string) string {
	if !b.on.gpu() {
		return "it needs a GPU"
	}
	problems := sharing.Mode(name).Check(sharing.Use{Slots: b.maxClients(), PerSlot: 1, Devices: []gpu.Device{b.on.device}})
	if len(problems) > 0 {
		return problems[0].Message
	}
	return ""
}

// lacks names a way to share that is not measured, once per reason.
func (b *bench) lacks(name, why string) {
	if one := (Unmeasured{name, why}); !slices.Contains(b.report.Unmeasured, one) {
		b.report.Unmeasured = append(b.report.Unmeasured, one)
	}
}
