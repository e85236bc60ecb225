package bench

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/gpumux/gpumux"
)

//go:embed workloads.py
var python string

// taskFile is the name of the embedded Python file on disk.
const taskFile = "workloads.py"

// Workloads are the names of all workloads, in the order in which they run.
var Workloads = []string{"heavy", "medium", "detector", "light", "oom"}

// Frameworks are what can multiply, in the order in which they are looked for;
// workloads.py has the same.
var Frameworks = []string{"torch", "jax", "cupy", "numpy"}

// task is the path of the Python file.
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
	return gpumux.Size(min(most, max(least, memory/2/uint64(b.most()+1))))
}

// env is what the function reads of its environment. An item of oom that passes its
// budget passes that of all slots together: when it is tried alone on the device at last,
// it has theirs too.
func (b *bench) env(workload, framework string) map[string]string {
	return map[string]string{
		"BENCH_FRAMEWORK": framework, "BENCH_SIZE": strconv.Itoa(b.size(workload)),
		"BENCH_BYTES": fmt.Sprint(int64(b.budget(workload)) * int64(max(b.most(), cpuSlots()))),
	}
}
