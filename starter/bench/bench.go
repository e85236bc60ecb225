package bench

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/store"
)

// Options of Run. Client and Folder are needed; the others have defaults.
type Options struct {
	// Client is of a namespace that no other gpumux worker serves; Run does not close it.
	Client client.Client
	// Namespace is the client's. Default "default".
	Namespace string
	// Converter is the client's data converter. Default: the SDK's.
	Converter converter.DataConverter
	// Folder takes the task file and the store. It must exist; the caller removes it.
	Folder string
	// Python runs the workloads, in slots and bare. Default python3.
	Python string
	// Framework is one of Frameworks. Default: the first of them that reaches a GPU, else the first that is there.
	Framework string
	// Pool is gpu or cpu. Default: the GPU where a framework reaches one, and the CPU beside it; else the CPU.
	Pool string
	// Clients are the numbers of slots that share the device, in ascending order and 1 among them. Default: 1, and 4 on a GPU; on the
	// CPU one per processor, at most 4.
	Clients []int
	// Limit is what a workload may take with one number of clients, by one way to share. Default: 30 s; 10 s when Quick.
	Limit time.Duration
	// Workloads are names of Workloads. Default: all of them, but without heavy when Quick.
	Workloads []string
	// Quick makes pieces and limit short.
	Quick bool
	// Compare measures trivial items against other tools, and no workloads.
	Compare bool
	// Version is reported. Default "dev".
	Version string
	// Say is told what is measured next, Round how far that is. Default: nobody.
	Say, Round func(text string)
	// Hard ends the waiting for an orderly end after the context of Run has ended. Default: never.
	Hard context.Context
	// Log is the worker's. Default: none.
	Log *zap.Logger
}

// names are the workloads that will run.
func (o Options) names() []string {
	if o.Compare {
		return []string{"light"}
	}
	switch {
	case len(o.Workloads) > 0:
		return o.Workloads
	case o.Quick:
		return slices.DeleteFunc(slices.Clone(Workloads), func(name string) bool { return name == "heavy" })
	}
	return Workloads
}

// mostSlots is the most slots that share a device without being told.
const mostSlots = 4

// bench is one run.
type bench struct {
	o           Options
	interpreter string
	task        string // the path of workloads.py
	storeURL    string
	store       *store.Store
	inventory   *gpu.Inventory
	// on is the device that is measured, cpu the CPU beside it or nil.
	on, cpu *target
	// around is the environment of a slot among so many, without what is the workload's.
	around map[int]map[string]string
	report *Report
}

// Run measures. Its errors are *Lacking when this machine lacks something, and the cause of ctx when that ended.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.Namespace = cmp.Or(o.Namespace, client.DefaultNamespace)
	o.Python = cmp.Or(o.Python, "python3")
	o.Version = cmp.Or(o.Version, "dev")
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.Round == nil {
		o.Round = func(string) {}
	}
	if o.Limit == 0 {
		o.Limit = limit
		if o.Quick {
			o.Limit = quickLimit
		}
	}
	if o.Hard == nil {
		o.Hard = context.Background()
	}
	began := time.Now()
	b := &bench{o: o, report: &Report{Version: o.Version, Quick: o.Quick}}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	defer b.inventory.Close()
	defer b.store.Close()
	err := b.readEnvironments(ctx)
	switch {
	case err != nil:
	case o.Compare:
		err = b.compare(ctx)
	default:
		err = b.measure(ctx)
	}
	if err != nil {
		return nil, err
	}
	b.report.Took = time.Since(began)
	return b.report, nil
}

// prepare finds what the runs need: Python, devices, store.
func (b *bench) prepare(ctx context.Context) (err error) {
	b.o.Say("looking at Python and devices")
	if b.interpreter, err = findPython(ctx, b.o.Python); err != nil {
		return err
	}
	if b.task, err = writeTask(b.o.Folder); err != nil {
		return err
	}
	if b.inventory, err = gpu.Open(gpu.Options{}); err != nil {
		return &Lacking{fmt.Sprintf("list this machine's devices: %v", err)}
	}
	if err = b.choose(ctx, b.inventory); err != nil {
		b.inventory.Close()
		return err
	}
	b.storeURL = (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(b.o.Folder, "store"))}).String()
	if b.store, err = store.Open(ctx, b.storeURL, nil); err != nil {
		b.inventory.Close()
		return err
	}
	if len(b.o.Clients) == 0 {
		b.o.Clients = []int{1, mostSlots}
		if !b.on.gpu() {
			b.o.Clients = slices.Compact([]int{1, cpuSlots()})
		}
	}
	b.report.Machine = Machine{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0), Device: b.on.name(), GPU: b.on.gpu(),
		Python: b.on.probe.Python, Framework: b.on.framework(),
	}
	if b.o.Compare {
		b.report.Machine.Framework = ""
	}
	return nil
}

// measure runs every workload in every stage.
func (b *bench) measure(ctx context.Context) error {
	loads, err := b.calibrate(ctx)
	if err != nil {
		return err
	}
	seats := b.seats()
	for _, w := range loads {
		if w.name == "oom" {
			if err := b.outOfMemory(ctx, w); err != nil {
				return err
			}
			continue
		}
		for _, at := range seats {
			if err := b.runStage(ctx, w, at); err != nil {
				return err
			}
		}
	}
	b.report.doubt()
	b.report.advise()
	return nil
}

// most is the largest number of clients.
func (b *bench) most() int { return b.o.Clients[len(b.o.Clients)-1] }

// note adds a remark to the report.
func (b *bench) note(format string, args ...any) {
	b.report.Notes = append(b.report.Notes, fmt.Sprintf(format, args...))
}
