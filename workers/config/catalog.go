package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/text"
)

// Catalog is all that a worker runs. A map's task is only ever looked up here, so no
// input makes the worker run what its operator did not name. Many goroutines may use it.
type Catalog struct {
	exact   map[string]launch.Task
	folders []folder // longest prefix first
}

// NewCatalog is a catalog of tasks by name.
func NewCatalog(exact map[string]launch.Task) *Catalog { return &Catalog{exact: exact} }

// folder is a folder of Python modules; base is the task without a target.
type folder struct {
	prefix string
	base   launch.Task
}

// Find returns the task of that name, or a *gpumux.Fault that lists the known ones.
func (c *Catalog) Find(name string) (launch.Task, error) {
	if task, ok := c.exact[name]; ok {
		return task, nil
	}
	for _, f := range c.folders {
		if rest, ok := strings.CutPrefix(name, f.prefix); ok {
			if task, ok := f.task(rest); ok {
				return task, nil
			}
		}
	}
	known := c.Names()
	return launch.Task{}, &gpumux.Fault{
		Kind: gpumux.FaultBadInput, Op: "start", Task: name,
		Hint:    "name the task in the worker's file, or use one of these",
		Message: fmt.Sprintf("no task %q; this worker has %s", name, text.List(known)),
	}
}

// Interpreter is the Python of some task, or "" where no task names one.
func (c *Catalog) Interpreter() string {
	for _, name := range slices.Sorted(maps.Keys(c.exact)) {
		if task := c.exact[name]; task.R == "" && task.Interpreter != "" {
			return task.Interpreter
		}
	}
	for _, f := range c.folders {
		if f.base.Interpreter != "" {
			return f.base.Interpreter
		}
	}
	return ""
}

// Edition is the edition of a task's code as its files are now.
func (c *Catalog) Edition(name string) (string, error) {
	task, err := c.Find(name)
	if err != nil {
		return "", err
	}
	return task.Code().Edition(), nil
}

// task is module:function or module.py:function of the folder, if there is one.
func (f folder) task(rest string) (launch.Task, bool) {
	name, function, ok := strings.Cut(rest, ":")
	name = strings.TrimSuffix(name, ".py")
	if !ok || !isModule(name) || !slices.Contains(f.functions(name), function) {
		return launch.Task{}, false
	}
	task := f.base
	// Each spelling gets the same name, so the same process serves it.
	task.Name = f.prefix + name + ":" + function
	task.Python = name + ".py:" + function
	task.OwnModule = true
	return task, true
}

// Names are the tasks in order, with the functions that the folders hold now.
func (c *Catalog) Names() []string {
	out := slices.Collect(maps.Keys(c.exact))
	for _, f := range c.folders {
		for _, module := range f.modules() {
			for _, function := range f.functions(module) {
				out = append(out, f.prefix+module+":"+function)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Modes has the mode of each task that sets one.
func (c *Catalog) Modes() map[string]gpumux.Mode {
	modes := map[string]gpumux.Mode{}
	for _, name := range c.Names() {
		task, err := c.Find(name)
		switch {
		case err != nil: // a folder that has changed since
		case len(task.Command) > 0:
			modes[name] = gpumux.ModeFresh
		case task.Mode != "":
			modes[name] = task.Mode
		}
	}
	return modes
}

// definition is the head of a public function at the top level of a Python file.
var definition = regexp.MustCompile(`(?m)^(?:async[ \t]+)?def[ \t]+(\pL[\pL\pN_]*)`)

// functions lists the public functions that a Python text defines at its top level. It
// may list one that stands in a string, or that the file replaces later. A process that
// loads a task of a folder refuses functions that the file has from elsewhere.
func functions(text string) (names []string) {
	for _, m := range definition.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// isModule reports whether a module of this name lies in a folder itself, not below it.
func isModule(name string) bool { return moduleName.MatchString(name) && !strings.Contains(name, ".") }

// functions lists what a module of the folder defines now, nothing if it cannot be read.
func (f folder) functions(module string) []string {
	text, _ := os.ReadFile(filepath.Join(f.base.Dir, module+".py"))
	return functions(string(text))
}

func (f folder) modules() (names []string) {
	files, _ := os.ReadDir(f.base.Dir)
	for _, file := range files {
		if name, ok := strings.CutSuffix(file.Name(), ".py"); ok && isModule(name) {
			names = append(names, name)
		}
	}
	return names
}
