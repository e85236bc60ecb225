package workers

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
)

// catalog is all that a worker runs. What a map asks for is only ever looked up here, so no input can make the worker run
// something that its operator did not name. It may be used from many goroutines: nothing writes it after it was made.
type catalog struct {
	exact   map[string]slot.Task
	folders []folder // longest prefix first
}

// folder is a folder of Python modules; task holds all but the target.
type folder struct {
	prefix string
	task   slot.Task
}

// topLevel finds functions that a module itself defines. What it imports is not offered: "from os import system" must not
// turn system into a task.
var topLevel = regexp.MustCompile(`(?m)^(?:async[ \t]+)?def[ \t]+([\pL_][\pL\pN_]*)[ \t]*[(\[]`)

// find is the task of that name, or a *gpumux.Fault that says what there is.
func (c *catalog) find(name string) (slot.Task, error) {
	if task, ok := c.exact[name]; ok {
		return task, nil
	}
	for _, f := range c.folders {
		rest, ok := strings.CutPrefix(name, f.prefix)
		if !ok {
			continue
		}
		if task, ok := f.find(rest); ok {
			return task, nil
		}
	}
	known := c.names()
	hint := didYouMean(name, known)
	if hint == "" {
		hint = "name the task in the worker's file, or use one of these"
	}
	return slot.Task{}, &gpumux.Fault{
		Kind: gpumux.BadInput, Op: "start", Task: name, Hint: hint,
		Message: fmt.Sprintf("no task %q; this worker has %s", name, list(known)),
	}
}

// edition is that of a task's code as its files are now.
func (c *catalog) edition(name string) (string, error) {
	task, err := c.find(name)
	if err != nil {
		return "", err
	}
	return task.Edition(), nil
}

// find takes module:function or module.py:function of a file that lies in the folder itself.
func (f folder) find(rest string) (slot.Task, bool) {
	module, function, ok := strings.Cut(rest, ":")
	module = strings.TrimSuffix(module, ".py")
	if !ok || !moduleName.MatchString(module) || strings.Contains(module, ".") || !slices.Contains(f.functions(module), function) {
		return slot.Task{}, false
	}
	task := f.task
	// One name however it was asked for, so that a process is found again.
	task.Name = f.prefix + module + ":" + function
	task.Python = module + ".py:" + function
	return task, true
}

// functions reads a module's source; a module that can not be read has none.
func (f folder) functions(module string) []string {
	source, err := os.ReadFile(filepath.Join(f.task.Dir, module+".py"))
	if err != nil {
		return nil
	}
	return functionsOf(source)
}

// functionsOf lists the public top-level functions of a Python source in its order.
func functionsOf(source []byte) []string {
	var out []string
	for _, m := range topLevel.FindAllSubmatch(source, -1) {
		if name := string(m[1]); !strings.HasPrefix(name, "_") && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// names are the tasks in order, with the functions that the folders hold now.
func (c *catalog) names() []string {
	out := slices.Collect(maps.Keys(c.exact))
	for _, f := range c.folders {
		files, _ := filepath.Glob(filepath.Join(globEscape.Replace(f.task.Dir), "*.py"))
		for _, file := range files {
			module := strings.TrimSuffix(filepath.Base(file), ".py")
			if !moduleName.MatchString(module) || strings.Contains(module, ".") {
				continue
			}
			for _, function := range f.functions(module) {
				out = append(out, f.prefix+module+":"+function)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// list writes names for people, the first twenty of them.
func list(names []string) string {
	const most = 20
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}
