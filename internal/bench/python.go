package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
)

// LackingError says that something is missing on this machine without which nothing can
// be measured.
type LackingError struct{ Message string }

// Error says what to install or to give.
func (e *LackingError) Error() string { return e.Message }

// target is a device with what `workloads.py probe` says of the interpreter on it.
type target struct {
	device gpu.Device
	// Interpreter is the Python itself, where --python may name a version manager's
	// script, which would cost time at every start.
	Interpreter string
	Python      string
	Framework   string
	Version     string
	Name        string // the framework's for the device
	GPU         bool   // reached by the framework
	Lacking     string // frameworks that are not there, and why
}

func (t *target) gpu() bool { return t.device.Kind != gpu.KindCPU }

// frameworkEnv is the same for slots and bare processes: JAX would otherwise take most of
// a GPU at its start.
var frameworkEnv = map[string]string{"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}

// environ makes the environment of a process; a later part overrides an earlier one.
func environ(parts ...map[string]string) (env []string) {
	for _, part := range parts {
		for name, value := range part {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (b *bench) choose(ctx context.Context) error {
	cpus, err := b.inventory.Select(gpu.Selection{"cpu"})
	if err != nil {
		return &LackingError{fmt.Sprintf("find this machine's CPU: %v", err)}
	}
	if b.on, err = b.probe(ctx, cpus[0]); err != nil {
		return err
	}
	b.Python = b.on.Interpreter
	onCPU := b.usable(b.on)
	if b.Pool == "cpu" {
		return onCPU
	}
	gpus, err := b.inventory.Select(gpu.Selection{"all"})
	if err != nil || len(gpus) == 0 {
		if b.Pool == "gpu" {
			return &LackingError{"this machine has no GPU that gpumux can use: " + b.inventory.Reason() + "; measure the CPU"}
		}
		return onCPU
	}
	found, err := b.probe(ctx, gpus[0])
	if err != nil {
		return err
	}
	if b.multiplies() && !found.GPU {
		why := fmt.Sprintf("no framework of %s reaches the GPU %s (%s); install one of them with CUDA, or give another Python",
			found.Interpreter, found.device, found.Lacking)
		if b.Pool == "gpu" {
			return &LackingError{why + "; or measure the CPU"}
		}
		b.report.Notes = append(b.report.Notes, "the CPU is measured: "+why)
		return onCPU
	}
	if len(gpus) > 1 && found.device.Kind == gpu.KindGPU {
		b.report.Notes = append(b.report.Notes, fmt.Sprintf("only the first of %d GPUs is measured", len(gpus)))
	}
	if b.Pool == "" && onCPU == nil {
		b.cpu = b.on
	}
	b.on = found
	return b.usable(found)
}

func (b *bench) multiplies() bool {
	return slices.ContainsFunc(b.Workloads, func(name string) bool { return name != "light" })
}

func (b *bench) usable(t *target) error {
	if !b.multiplies() || t.Framework != "" {
		return nil
	}
	return &LackingError{fmt.Sprintf("the workloads multiply matrices, and this Python has nothing that can (%s); "+
		"install one, such as numpy, give another Python, or measure the workload light", t.Lacking)}
}

// probe asks the interpreter what it has on a device, before a slot's environment is
// known.
func (b *bench) probe(ctx context.Context, d gpu.Device) (*target, error) {
	t := &target{device: d}
	env := map[string]string{"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
	if t.gpu() {
		env = map[string]string{"CUDA_VISIBLE_DEVICES": d.UUID, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
	}
	env["BENCH_FRAMEWORK"] = b.Framework
	return t, b.ask(ctx, append(os.Environ(), environ(frameworkEnv, env)...), t, "probe")
}

func (b *bench) ask(ctx context.Context, env []string, answer any, args ...string) error {
	out, err := b.command(ctx, env, args...).Output()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return &LackingError{fmt.Sprintf("%s %s %s: %v: %s", b.Python, taskFile, args[0], err, lastLine(string(exit.Stderr)))}
		}
		return &LackingError{fmt.Sprintf("%s does not start: %v; install Python 3, or give another Python", b.Python, err)}
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("read what %s %s printed: %w", taskFile, args[0], err)
	}
	return nil
}

// command makes a Python process that ends with ctx, its children included.
func (b *bench) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.Python, append([]string{b.task()}, args...)...)
	cmd.Env = env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	return cmd
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

//go:embed workloads.py
var python string

const taskFile = "workloads.py"

// Workloads are the names of all workloads, in the order in which they run.
var Workloads = []string{"heavy", "medium", "detector", "light", "oom"}

// Frameworks can multiply, and are looked for in this order;
// workloads.py has the same.
var Frameworks = []string{"torch", "jax", "cupy", "numpy"}

func (b *bench) task() string { return filepath.Join(b.Folder, taskFile) }

// size is the rows and columns of the matrices of a workload, or 0. A GPU would be done
// with the CPU's matrices before a call is.
func (b *bench) size(workload string) int {
	size := map[string]int{"heavy": 2048, "medium": 1024}[workload]
	if b.on.gpu() {
		size *= 4
	}
	return size
}

// budget is the memory budget of a slot, or 0. Slots side by side have at most half of
// the device together.
func (b *bench) budget(workload string) gpumux.Size {
	const most, least = 1 << 30, 256 << 20
	memory := b.on.device.Memory
	switch {
	case workload != "oom":
		return 0
	case b.cpu != nil:
		memory = min(memory, b.cpu.device.Memory)
	}
	if memory == 0 {
		return most
	}
	return gpumux.Size(min(most, max(least, memory/2/uint64(b.maxClients()+1))))
}

// env has the variables that the workloads read. A greedy item of oom takes more than the
// budgets of all slots together, because its last attempt has the device to itself.
func (b *bench) env(workload, framework string) map[string]string {
	if workload == "light" {
		framework = "" // it calculates nothing
	}
	return map[string]string{
		"BENCH_FRAMEWORK": framework, "BENCH_SIZE": strconv.Itoa(b.size(workload)),
		"BENCH_BYTES": fmt.Sprint(int64(b.budget(workload)) * int64(max(b.maxClients(), cpuSlots()))),
	}
}
