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
// processes, and one bare process alone run a piece each. The process alone is the
// unshared device. Every other round goes backwards, so that other work on the machine
// hits all alike, and shares are computed within a round.
//
// The throughput of a piece is that of its steady state, while all slots have work. A
// piece of slots is a map with one chunk per slot.
package bench

import (
	"cmp"
	"context"
	"errors"
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

// Workloads are functions of workloads.py, and Frameworks what they can use, in the order
// in which each is tried. Sharings are the ways to share a device that are measured.
var (
	Workloads  = []string{"heavy", "medium", "detector", "light"}
	Frameworks = []string{"torch", "jax", "cupy", "numpy"}
	Sharings   = []string{string(sharing.Default), string(sharing.MPS), string(sharing.MIG)}
)

// Options of New.
type Options struct {
	// Starter is of a server that no other gpumux worker serves; New gives it a store.
	Starter *starter.Starter
	// Folder takes the task file and the store. It must exist; the caller removes it.
	Folder string
	// Python runs the workloads, in slots and bare. Default python3.
	Python string
	// Framework is one of Frameworks. Default: the first that reaches a GPU, else the
	// first that there is.
	Framework string
	// Pool is gpu or cpu. Default: the GPU, where there is one.
	Pool string
	// Clients are the numbers of slots that share the device, in ascending order and 1
	// among them. Default: 1, and 4, or one per processor where those are fewer.
	Clients []int
	// Limit bounds a workload in one pool.
	Limit time.Duration
	// Workloads are of Workloads, and Sharing of Sharings. Sharing default is always
	// measured, since the others are compared with it.
	Workloads, Sharing []string
	// NoFresh leaves the fresh slots out.
	NoFresh bool
	// Version is reported.
	Version string
	// Say is given what is measured next.
	Say func(text string)
	// Keep is given the report after each stage, so that a run that is ended leaves what it
	// has measured; an error of it ends the run.
	Keep func(*Report) error
	// Hard ends the waiting for an orderly end after the context of Run has ended.
	Hard context.Context
	// Log is the worker's. Default: none.
	Log *zap.Logger
}

// Bench is a machine that can be measured.
type Bench struct {
	Options
	storeURL  string
	store     *store.Store
	inventory *gpu.Inventory
	device    gpu.Device
	framework string
	// environs has the environment of one of so many slots. As many bare processes get it
	// too: other threads or libraries would make the comparison one of environments.
	environs map[int]map[string]string
	report   *Report
}

// New finds what Run needs. Its errors are about what this machine lacks. The caller
// closes the Bench.
func New(ctx context.Context, o Options) (_ *Bench, err error) {
	o.Python = cmp.Or(o.Python, "python3")
	b := &Bench{Options: o, environs: map[int]map[string]string{}, report: &Report{Version: o.Version}}
	b.Say("looking at Python and devices")
	if err = os.WriteFile(b.file(), []byte(python), 0o644); err != nil {
		return nil, fmt.Errorf("write the workloads: %w", err)
	}
	b.storeURL = (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(b.Folder, "store"))}).String()
	if b.store, err = store.Open(ctx, b.storeURL, nil); err != nil {
		return nil, err
	}
	b.Starter.Store = b.store
	if b.inventory, err = gpu.Open(ctx, gpu.Options{}); err != nil {
		err = fmt.Errorf("list this machine's devices: %w", err)
	} else {
		err = b.choose(ctx)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	if len(b.Clients) == 0 {
		b.Clients = slices.Compact([]int{1, min(runtime.GOMAXPROCS(0), 4)})
	}
	return b, nil
}

// Close ends the reading of devices.
func (b *Bench) Close() {
	b.store.Close()
	if b.inventory != nil {
		b.inventory.Close()
	}
}

// choose takes the device and asks the interpreter what it has on it.
func (b *Bench) choose(ctx context.Context) error {
	devices, err := b.inventory.Select(gpu.Selection{"all"})
	if b.Pool == "cpu" || b.Pool == "" && err != nil {
		devices, err = b.inventory.Select(gpu.Selection{"cpu"})
	}
	if err != nil {
		return fmt.Errorf("%w; measure the CPU with --pool cpu", err)
	}
	b.device = devices[0]
	found, err := b.probe(ctx)
	if err != nil {
		return err
	}
	onGPU := b.device.Kind != gpu.KindCPU
	switch calculates := slices.ContainsFunc(b.Workloads, func(name string) bool { return name != "light" }); {
	case calculates && onGPU && !found.GPU:
		return fmt.Errorf("no framework of %s reaches the GPU %s (%s); install one of them with CUDA, give another --python, "+
			"or measure the CPU with --pool cpu", found.Interpreter, b.device, found.Lacking)
	case calculates && found.Framework == "":
		return fmt.Errorf("the workloads multiply matrices, and this Python has nothing that can (%s); install one, such as numpy, "+
			"give another --python, or measure the workload light", found.Lacking)
	}
	if len(devices) > 1 {
		b.report.Notes = append(b.report.Notes, fmt.Sprintf("only the first of %d devices is measured", len(devices)))
	}
	b.Python, b.framework = found.Interpreter, found.Framework
	b.report.Machine = Machine{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0), GPU: onGPU, Python: found.Python,
		Device: cmp.Or(found.Name, b.device.Name), Framework: strings.TrimSpace(found.Framework + " " + found.Version),
	}
	return nil
}

// Run measures. Its error is the cause of ctx when that ended.
func (b *Bench) Run(ctx context.Context) (*Report, error) {
	began := time.Now()
	stages := b.stages()
	for _, workload := range b.Workloads {
		for _, s := range stages {
			s.workload = workload
			if err := b.runStage(ctx, s); err != nil {
				return nil, err
			}
			if err := b.Keep(b.report); err != nil {
				return nil, err
			}
		}
		b.report.advise(workload)
	}
	b.report.Took = time.Since(began)
	return b.report, b.Keep(b.report)
}

// stage is a workload in a pool.
type stage struct {
	workload string
	way      Way
	sharing  string
	slots    int // of each device
	devices  []string
}

func (s stage) clients() int { return s.slots * len(s.devices) }

// stages of each workload.
func (b *Bench) stages() (all []stage) {
	for _, name := range Sharings {
		if len(b.Sharing) > 0 && name != Sharings[0] && !slices.Contains(b.Sharing, name) {
			continue
		}
		if why := b.refused(name); why != "" {
			b.lacks(name, why)
			continue
		}
		instances := b.instances()
		for _, clients := range b.Clients {
			s := stage{way: Persistent, sharing: name, slots: clients, devices: []string{b.device.UUID}}
			if name == string(sharing.MIG) {
				if clients > len(instances) {
					b.lacks(name, fmt.Sprintf("%d clients need as many instances, and there are %d", clients, len(instances)))
					break
				}
				s.slots, s.devices = 1, instances[:clients]
			}
			all = append(all, s)
		}
		if name == Sharings[0] && !b.NoFresh {
			fresh := all[len(all)-1]
			fresh.way = Fresh
			all = append(all, fresh)
		}
	}
	return all
}

func (b *Bench) instances() (uuids []string) {
	for _, d := range b.inventory.Devices() {
		if d.Kind == gpu.KindMIG {
			uuids = append(uuids, d.UUID)
		}
	}
	return uuids
}

// refused says why the device cannot be shared so, or nothing.
func (b *Bench) refused(name string) string {
	if name == Sharings[0] {
		return ""
	}
	if b.device.Kind == gpu.KindCPU {
		return "it needs a GPU"
	}
	use := sharing.Use{Slots: b.Clients[len(b.Clients)-1], PerSlot: 1, Devices: []gpu.Device{b.device}}
	if problems := sharing.Mode(name).Check(use); len(problems) > 0 {
		return problems[0].Message
	}
	return ""
}

// lacks names a way to share that is not measured, once per reason.
func (b *Bench) lacks(name, why string) {
	if one := (Unmeasured{name, why}); !slices.Contains(b.report.Unmeasured, one) {
		b.report.Unmeasured = append(b.report.Unmeasured, one)
	}
}

func (b *Bench) runStage(ctx context.Context, s stage) (err error) {
	row := Row{Workload: s.workload, Size: b.size(s.workload), Way: s.way, Sharing: s.sharing, Clients: s.clients()}
	b.Say(row.label() + ": " + row.name())
	served, err := b.serve(ctx, s)
	if err != nil {
		if ctx.Err() != nil || s.sharing == Sharings[0] {
			return err
		}
		b.lacks(s.sharing, err.Error())
		return nil
	}
	defer func() { err = errors.Join(err, served.stop()) }()
	env, err := served.warm(ctx)
	if err != nil {
		return err
	}
	if s.sharing == Sharings[0] {
		b.environs[s.clients()] = env
	}
	counts := []int{1, s.clients()}
	if s.clients() == 1 || s.sharing == string(sharing.MIG) { // bare processes share no instances
		counts = counts[:1]
	}
	var lanes []*lane
	for _, clients := range counts {
		p, err := b.startBare(ctx, s.workload, clients)
		defer p.close()
		if err != nil {
			return err
		}
		lanes = append(lanes, &lane{clients: clients, least: minItems, limit: maxBareItems, run: p.piece})
	}
	alone, beside := lanes[0], lanes[len(lanes)-1]
	if beside.clients != s.clients() {
		beside = nil
	}
	slots := &lane{clients: s.clients(), least: minItems, limit: maxItems, run: served.piece}
	if s.way == Fresh {
		slots.least = minFreshItems
	}
	if err := takeTurns(ctx, append(lanes, slots), b.Limit); err != nil {
		return err
	}
	if s.sharing == Sharings[0] && s.way != Fresh {
		bare := row
		bare.Way, bare.Sharing = Bare, ""
		b.report.Rows = append(b.report.Rows, beside.result(bare, alone, nil))
	}
	b.report.Rows = append(b.report.Rows, slots.result(row, alone, beside))
	return nil
}
