package bench

import (
	_ "embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
)

//go:embed workloads.py
var python string

// taskFile is the name of the embedded Python file on disk.
const taskFile = "workloads.py"

// Workloads are the names of all workloads, in the order in which they run.
var Workloads = []string{"heavy", "medium", "detector", "light", "oom"}

// Frameworks are what can multiply, in the order in which they are looked for; workloads.py has the same.
var Frameworks = []string{"torch", "jax", "cupy", "numpy"}

const (
	// budget is the memory budget of a slot in the oom workload; a small machine has less.
	budget      = 1 << 30
	leastBudget = 256 << 20
	// breaks is that one item in so many passes the budget, products how many products it keeps; both are workloads.py's too.
	breaks   = 5
	products = 30
)

// workload is one of the functions of workloads.py with what calibration found.
type workload struct {
	name string
	// size is the rows and columns of its matrices, or 0.
	size int
	// seconds is what a call takes in one warm process.
	seconds float64
	// memory is the budget of a slot; 0: none.
	memory gpumux.Size
}

// label is the workload for people: "heavy 2048×2048".
func label(name string, size int) string {
	if size == 0 {
		return name
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d×%d", name, size, size))
}

// env is what the function reads of its environment. An item of oom that passes the budget keeps enough to pass that of so
// many slots: with the whole device to itself, where it is tried at last, it has the budgets of all of them.
func (w workload) env(framework string, slots int) map[string]string {
	env := map[string]string{"BENCH_FRAMEWORK": framework}
	if w.size > 0 {
		env["BENCH_"+map[string]string{"heavy": "HEAVY", "medium": "MEDIUM"}[w.name]] = strconv.Itoa(w.size)
	}
	if w.name == "oom" {
		env["BENCH_BREAKS"] = strconv.Itoa(breaks)
		env["BENCH_ROWS"] = strconv.Itoa(rowsToPass(int64(w.memory) * int64(slots)))
	}
	return env
}

// rowsToPass is the rows and columns of which thirty products in 4-byte numbers pass a budget by a half, so that they are over it
// for long enough to be noticed by a watch that looks now and then.
func rowsToPass(budget int64) int {
	return int(math.Ceil(math.Sqrt(float64(budget) * 3 / 2 / products / 4)))
}

// budgetFor is the budget that slots side by side can have on a device with so much memory: at most half of it together.
func budgetFor(memory uint64, slots int) gpumux.Size {
	if memory == 0 {
		return budget
	}
	return gpumux.Size(min(budget, max(leastBudget, memory/2/uint64(slots+1))))
}

// needsFramework reports whether a workload multiplies matrices.
func needsFramework(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return name != "light" })
}

// writeTask puts the Python file into a folder and returns its path.
func writeTask(folder string) (string, error) {
	path := filepath.Join(folder, taskFile)
	if err := os.WriteFile(path, []byte(python), 0o644); err != nil {
		return "", fmt.Errorf("write the workloads: %w", err)
	}
	return path, nil
}
