package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/sharing"
)

type bench struct {
	benchFlags
	app       *app
	file      string // workloads.py
	device    gpu.Device
	instances []string // MIG instances
	// environs has the environment of one of so many slots. As many bare processes get it
	// too: other threads or libraries would make the comparison one of environments.
	environs map[int]map[string]string
	report   *benchReport
}

// choose takes the device and asks the interpreter what it has on it.
func (b *bench) choose(ctx context.Context) error {
	b.say("looking at Python and devices")
	inventory, err := gpu.Open(ctx, gpu.Options{})
	if err != nil {
		return fmt.Errorf("list this machine's devices: %w", err)
	}
	defer inventory.Close()
	devices, err := inventory.Select(gpu.Selection{"all"})
	if b.pool == "cpu" || b.pool == "" && err != nil {
		devices, err = inventory.Select(gpu.Selection{"cpu"})
	}
	if err != nil {
		return fmt.Errorf("%w; measure the CPU with --pool cpu", err)
	}
	b.device = devices[0]
	for _, d := range inventory.Devices() {
		if d.Kind == gpu.KindMIG {
			b.instances = append(b.instances, d.UUID)
		}
	}
	found, err := b.probe(ctx)
	if err != nil {
		return err
	}
	switch calculates := slices.ContainsFunc(b.workloads, func(name string) bool { return name != "light" }); {
	case calculates && b.onGPU() && !found.GPU:
		return fmt.Errorf("no framework of %s reaches the GPU %s (%s); install one of them with CUDA, give another --python, "+
			"or measure the CPU with --pool cpu", found.Interpreter, b.device, found.Lacking)
	case calculates && found.Framework == "":
		return fmt.Errorf("the workloads multiply matrices, and this Python has nothing that can (%s); install one, such as numpy, "+
			"give another --python, or measure the workload light", found.Lacking)
	}
	if len(devices) > 1 {
		b.report.Notes = append(b.report.Notes, fmt.Sprintf("only the first of %d devices is measured", len(devices)))
	}
	b.python, b.framework = found.Interpreter, found.Framework
	b.report.Machine = machine{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0), GPU: b.onGPU(), Python: found.Python,
		Device: cmp.Or(found.Name, b.device.Name), Framework: strings.TrimSpace(found.Framework + " " + found.Version),
	}
	return nil
}

func (b *bench) onGPU() bool { return b.device.Kind != gpu.KindCPU }

// benchProbed is what `workloads.py probe` says of the interpreter.
type benchProbed struct {
	// Interpreter is the Python itself, where --python may name a version manager's
	// script, which would cost time at every start.
	Interpreter, Python string
	Framework, Version  string
	Name                string // the framework's for the device
	GPU                 bool   // reached by the framework
	Lacking             string // frameworks that cannot be used, and why
}

// probe asks the interpreter what it has on the device, before a slot's environment is
// known.
func (b *bench) probe(ctx context.Context) (found benchProbed, err error) {
	env := []string{"CUDA_VISIBLE_DEVICES=", "JAX_PLATFORMS=cpu"}
	if b.onGPU() {
		env = []string{"CUDA_VISIBLE_DEVICES=" + b.device.UUID, "CUDA_DEVICE_ORDER=PCI_BUS_ID"}
	}
	env = slices.Concat(os.Environ(), env, []string{"XLA_PYTHON_CLIENT_PREALLOCATE=false", "BENCH_FRAMEWORK=" + b.framework})
	b.python = cmp.Or(b.python, "python3")
	out, err := b.command(ctx, env, "probe").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return found, fmt.Errorf("%s %s probe: %w: %s", b.python, b.file, err, exit.Stderr)
	} else if err != nil {
		return found, fmt.Errorf("%s does not start: %w; install Python 3, or give another --python", b.python, err)
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return found, fmt.Errorf("read what %s probe printed: %w", b.file, err)
	}
	return found, nil
}

// size is the rows and columns of the matrices of a workload, or 0. A GPU would be done
// with the CPU's matrices before a call is.
func (b *bench) size(workload string) int {
	size := map[string]int{"heavy": 2048, "medium": 1024}[workload]
	if b.onGPU() {
		size *= 4
	}
	return size
}

type benchStage struct {
	workload string
	way      way
	sharing  string
	slots    int // of each device
	devices  []string
}

func (s benchStage) clients() int { return s.slots * len(s.devices) }

func (b *bench) measure(ctx context.Context) error {
	began := time.Now()
	stages := b.stages()
	for _, workload := range b.workloads {
		for _, s := range stages {
			s.workload = workload
			if err := b.runStage(ctx, s); err != nil {
				return err
			}
			if err := b.keep(); err != nil {
				return err
			}
		}
		b.report.advise(workload)
	}
	b.report.Took = time.Since(began)
	return b.keep()
}

// stages of each workload. Sharing default is always measured, since the others are
// compared with it.
func (b *bench) stages() (all []benchStage) {
	for _, clients := range b.clients {
		all = append(all, benchStage{way: wayPersistent, sharing: benchSharings[0], slots: clients, devices: []string{b.device.UUID}})
	}
	inDefault := slices.Clone(all)
	if !b.noFresh {
		fresh := all[len(all)-1]
		fresh.way = wayFresh
		all = append(all, fresh)
	}
	for _, name := range benchSharings[1:] {
		if !slices.Contains(b.sharing, name) {
			continue
		}
		if why := b.refused(name); why != "" {
			b.lacks(name, why)
			continue
		}
		for _, s := range inDefault {
			if s.sharing = name; name == string(sharing.MIG) {
				if s.slots > len(b.instances) {
					b.lacks(name, fmt.Sprintf("%d clients need as many instances, and there are %d", s.slots, len(b.instances)))
					break
				}
				s.slots, s.devices = 1, b.instances[:s.slots]
			}
			all = append(all, s)
		}
	}
	return all
}

// refused says why the device cannot be shared so, or nothing.
func (b *bench) refused(name string) string {
	if !b.onGPU() {
		return "it needs a GPU"
	}
	use := sharing.Use{Slots: b.clients[len(b.clients)-1], PerSlot: 1, Devices: []gpu.Device{b.device}}
	if problems := sharing.Mode(name).Check(use); len(problems) > 0 {
		return problems[0].Message
	}
	return ""
}

// lacks names a way to share that is not measured, once per reason.
func (b *bench) lacks(name, why string) {
	if one := (unmeasured{name, why}); !slices.Contains(b.report.Unmeasured, one) {
		b.report.Unmeasured = append(b.report.Unmeasured, one)
	}
}

func (b *bench) runStage(ctx context.Context, s benchStage) error {
	row := benchRow{Workload: s.workload, Size: b.size(s.workload), Way: s.way, Sharing: s.sharing, Clients: s.clients()}
	b.say(strings.ReplaceAll(row.Name(), ",", ":"))
	pool, err := b.serve(ctx, s)
	if err != nil {
		if ctx.Err() != nil || s.sharing == benchSharings[0] {
			return err
		}
		b.lacks(s.sharing, err.Error())
		return nil
	}
	defer pool.session.Close(b.app.hard)
	ctx = pool.session.Context()
	env, err := pool.warm(ctx)
	if err != nil {
		return err
	}
	if s.sharing == benchSharings[0] {
		b.environs[s.clients()] = env
	}
	counts := []int{1, s.clients()}
	if s.clients() == 1 || s.sharing == string(sharing.MIG) { // bare processes share no instances
		counts = counts[:1]
	}
	var lanes []*lane
	for _, clients := range counts {
		p, err := b.startBare(ctx, s.workload, clients)
		if err != nil {
			return err
		}
		defer p.close()
		lanes = append(lanes, &lane{clients: clients, minItems: minItems, maxItems: maxBareItems, run: p.piece})
	}
	alone, beside := lanes[0], lanes[len(lanes)-1]
	if beside.clients != s.clients() {
		beside = nil
	}
	slots := &lane{clients: s.clients(), minItems: minItems, maxItems: maxItems, run: pool.piece}
	if s.way == wayFresh {
		slots.minItems = minFreshItems
	}
	if err := takeTurns(ctx, append(lanes, slots), b.limit); err != nil {
		return err
	}
	if s.sharing == benchSharings[0] && s.way != wayFresh {
		bare := row
		bare.Way, bare.Sharing = wayBare, ""
		b.report.Rows = append(b.report.Rows, beside.result(bare, alone, nil))
	}
	b.report.Rows = append(b.report.Rows, slots.result(row, alone, beside))
	return nil
}
