package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/strict"
	"github.com/gpumux/gpumux/internal/text"
)

// Task says how one task is run: exactly one of the first five fields is set.
type Task struct {
	// Python is "file.py:function" or "module:function", found from Dir.
	Python string `json:"python,omitzero"`
	// PythonDir is a folder of modules; each function there is a task,
	// prefix/module:function.
	PythonDir string `json:"python_dir,omitzero"`
	// R is "file.R:function", found from Dir.
	R string `json:"r,omitzero"`
	// Command is a program and its arguments, run once per item.
	Command []string `json:"command,omitzero"`
	// Program is a task process of its own that speaks the wire (docs/wire.md).
	Program []string `json:"program,omitzero"`
	// Venv is a Python environment, Interpreter a Python or Rscript. Default: on PATH.
	Venv        string `json:"venv,omitzero"`
	Interpreter string `json:"interpreter,omitzero"`
	// Dir is the working folder. Default: the file's folder, or PythonDir.
	Dir string `json:"dir,omitzero"`
	// Env adds to the environment; PassEnv names what is passed on from the worker's.
	Env     map[string]string `json:"env,omitzero"`
	PassEnv []string          `json:"pass_env,omitzero"`
	// Mode is the task's own mode. Default: the pool's; commands are always fresh.
	Mode gpumux.Mode `json:"mode,omitzero"`
	// Fresh is how a fresh item of a Python task gets its process: fork, from a process that
	// has imported the task, or spawn, a new interpreter. Default fork.
	Fresh string `json:"fresh,omitzero"`
	// ExplainOOM has PyTorch remember which lines allocate, for faults of memory.
	ExplainOOM bool `json:"explain_oom,omitzero"`
	// Start bounds the start of a process, imports included. Default 5 min.
	Start gpumux.Duration `json:"start,omitzero"`
	// Timeout bounds one item. Default: none.
	Timeout gpumux.Duration `json:"timeout,omitzero"`
	// Recycle replaces a persistent process after so many items. Default: never.
	Recycle int `json:"recycle,omitzero"`
	// Output is the format of a command's output: json or text. Default json.
	Output string `json:"output,omitzero"`
}

var moduleName = regexp.MustCompile(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)

// catalog resolves every task, or reports what is wrong with it.
func (c Config) catalog(r *report) *Catalog {
	r.when(len(c.Tasks) == 0 && c.file != "", "tasks", `none given; name at least one, such as embed: {python: "embed.py:embed"}`)
	tasks := NewCatalog(map[string]launch.Task{})
	for _, name := range slices.Sorted(maps.Keys(c.Tasks)) {
		at := strict.Member("tasks", name)
		t := c.Tasks[name]
		task := c.task(name, at, t, r)
		prefix, isFolder := strings.CutSuffix(name, "*") // "sweep/" of "sweep/*", and "" of "*"
		isFolder = isFolder && (prefix == "" || strings.HasSuffix(prefix, "/"))
		switch {
		case strings.TrimSpace(name) != name || name == "" || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' }):
			r.add(at, "%q is not a name; use letters, digits and . - _ / :", name)
		case isFolder && t.PythonDir == "":
			r.add(at, "a name with * stands for a folder of modules; give python_dir, or a name without *")
		case !isFolder && t.PythonDir != "":
			r.add(at, "python_dir makes many tasks; write the name as %q", strings.TrimRight(name, "*/")+"/*")
		case isFolder:
			tasks.folders = append(tasks.folders, folder{prefix, task})
		default:
			tasks.exact[name] = task
		}
	}
	// The longest prefix is the most exact one.
	slices.SortFunc(tasks.folders, func(a, b folder) int { return len(b.prefix) - len(a.prefix) })
	return tasks
}

// task makes what a slot starts and reports every mistake on the way.
func (c Config) task(name, at string, t Task, r *report) launch.Task {
	kindsGiven := map[string]bool{
		"python": t.Python != "", "python_dir": t.PythonDir != "", "r": t.R != "", "command": len(t.Command) > 0, "program": len(t.Program) > 0,
	}
	maps.DeleteFunc(kindsGiven, func(_ string, set bool) bool { return !set })
	kinds := slices.Sorted(maps.Keys(kindsGiven))
	r.when(len(kinds) == 0, at, "says not what to run; give one of python, python_dir, r, command and program")
	r.when(len(kinds) > 1, at, "has %s; give only one", strings.Join(kinds, " and "))
	task := launch.Task{
		Name: name, Dir: c.path(t.Dir), Text: t.Output == "text", Env: t.Env, PassEnv: t.PassEnv,
		Mode: t.Mode, Fresh: launch.Fresh(t.Fresh), ExplainOOM: t.ExplainOOM, StartLimit: time.Duration(t.Start), Timeout: time.Duration(t.Timeout), Recycle: t.Recycle,
	}
	switch {
	case t.Dir != "":
		checkFolder(at+".dir", task.Dir, r)
		r.when(t.PythonDir != "", at+".dir", "python_dir is the working folder already; leave dir out")
	case t.PythonDir != "":
		task.Dir = c.path(t.PythonDir)
		checkFolder(at+".python_dir", task.Dir, r)
	default:
		task.Dir = c.dir()
	}
	switch {
	case t.Python != "" || t.PythonDir != "" || t.R != "":
		task.Interpreter = c.interpreter(at, t, r)
	case t.Venv != "" || t.Interpreter != "":
		r.add(at, "venv and interpreter are for python, python_dir and r; a command or program starts by itself")
	}
	if t.Python != "" {
		task.Python = t.Python
		checkPython(at+".python", task, r)
	}
	if t.R != "" {
		task.R = t.R
		checkR(at+".r", task, r)
	}
	task.Command = program(at+".command", t.Command, task.Dir, r)
	task.Program = program(at+".program", t.Program, task.Dir, r)
	t.checkLimits(at, r)
	checkEnv(at, t, r)
	return task
}

func (t Task) checkLimits(at string, r *report) {
	oneOf(r, at+".mode", t.Mode, gpumux.ModePersistent, gpumux.ModeFresh)
	oneOf(r, at+".fresh", t.Fresh, string(launch.Fork), string(launch.Spawn))
	oneOf(r, at+".output", t.Output, "json", "text")
	command := len(t.Command) > 0
	r.when(command && t.Mode == gpumux.ModePersistent, at+".mode", "a command runs once per item, so it is always fresh; leave mode out, or give a program that stays")
	r.when(command && t.Recycle != 0, at+".recycle", "a command runs once per item; leave it out")
	r.when(!command && t.Output != "", at+".output", "is for commands only; a function returns its result")
	r.when(command && t.Start != 0, at+".start", "a command has no start of its own; give timeout, which counts all of it")
	python := t.Python != "" || t.PythonDir != ""
	r.when(t.Fresh != "" && !python, at+".fresh", "is for python and python_dir only; what else runs once per item starts anew each time")
	r.when(t.ExplainOOM && !python, at+".explain_oom", "is for python and python_dir only")
	r.when(t.Start < 0, at+".start", "is negative; leave it out for the default")
	r.when(t.Timeout < 0, at+".timeout", "is negative; leave it out for no limit")
	r.when(t.Recycle < 0, at+".recycle", "is negative; leave it out for no limit")
}

func (c Config) interpreter(at string, t Task, r *report) string {
	name, install := "python3", "install Python, or give interpreter or venv"
	if t.R != "" {
		name, install = "Rscript", "install R (on Debian: apt-get install r-base-core r-cran-jsonlite), or give interpreter"
	}
	switch {
	case t.R != "" && t.Venv != "":
		r.add(at+".venv", "is for Python; give the Rscript as interpreter, and packages by R_LIBS in env")
		return ""
	case t.Venv != "" && t.Interpreter != "":
		r.add(at, "has venv and interpreter; give only one")
		return ""
	case t.Venv != "":
		venv := c.path(t.Venv)
		python := filepath.Join(venv, "bin", "python")
		if _, err := exec.LookPath(python); err != nil {
			r.add(at+".venv", "%s is no Python environment (%s is missing); create it with: python3 -m venv %s", venv, python, venv)
		}
		return python
	case t.Interpreter != "":
		return executable(at+".interpreter", t.Interpreter, c.dir(), r)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		r.add(at, "there is no %s on PATH; %s", name, install)
		return name
	}
	return path
}

func checkFolder(at, path string, r *report) {
	if info, err := os.Stat(path); err != nil {
		r.add(at, "%s: %s", path, reason(err))
	} else if !info.IsDir() {
		r.add(at, "%s is not a folder", path)
	}
}

// program makes the first word absolute, so it means the same in every working folder.
func program(at string, words []string, dir string, r *report) []string {
	if len(words) == 0 {
		return nil
	}
	words = slices.Clone(words)
	words[0] = executable(at, words[0], dir, r)
	return words
}

// executable is the absolute path of a program: from PATH, or from dir with a slash.
func executable(at, name, dir string, r *report) string {
	if !strings.ContainsRune(name, filepath.Separator) {
		path, err := exec.LookPath(name)
		if err != nil {
			r.add(at, "%q is not on PATH; give its path, such as ./%s%s", name, name,
				text.When(strings.ContainsAny(name, " |&;<>"), ", or a line of a shell as sh -c '%s'", name))
			return name
		}
		return path
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	if info, err := os.Stat(path); err != nil {
		r.add(at, "%s: %s", path, reason(err))
	} else if info.IsDir() {
		r.add(at, "%s is a folder; name the program in it", path)
	} else if _, err := exec.LookPath(path); err != nil {
		r.add(at, "%s is not executable; make it so with: chmod +x %s", path, path)
	}
	return path
}

// source is the text of a task's file, which is found from its folder.
func source(at, file string, task launch.Task, r *report) (path, text string, ok bool) {
	path = file
	if !filepath.IsAbs(path) {
		path = filepath.Join(task.Dir, file)
	}
	read, err := os.ReadFile(path)
	if err != nil {
		r.add(at, "%s: %s", path, reason(err))
	}
	return path, string(read), err == nil
}

// checkPython looks at a target without importing it.
func checkPython(at string, task launch.Task, r *report) {
	i := strings.LastIndexByte(task.Python, ':')
	if i <= 0 || !moduleName.MatchString(task.Python[i+1:]) {
		r.add(at, "%q does not say which function; write it as file.py:function or module:function", task.Python)
		return
	}
	file, function := task.Python[:i], task.Python[i+1:]
	if !strings.HasSuffix(file, ".py") {
		r.when(!moduleName.MatchString(file), at, "%q is no module name; write it as file.py:function or module:function", file)
		return
	}
	path, code, ok := source(at, file, task, r)
	if first, _, _ := strings.Cut(function, "."); ok && !strings.Contains(code, first) {
		r.add(at, "%s has no function %s; it has %s", path, first, text.List(functions(code)))
	}
}

func checkEnv(at string, t Task, r *report) {
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		why := launch.Refused(name)
		r.when(why != "", strict.Member(at+".env", name), "%s", why)
	}
	for i, name := range t.PassEnv {
		why := launch.Refused(name)
		r.when(why != "", fmt.Sprintf("%s.pass_env[%d]", at, i), "%s", why)
	}
}

// reason is the system's error without the operation and the path.
func reason(err error) string {
	if errors.Is(err, os.ErrNotExist) {
		return "does not exist"
	}
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}

// rName is a name as R writes it without quotes.
var rName = regexp.MustCompile(`^(?:[\pL]|\.[\pL_.]|\.$)[\pL\pN._]*$`)

// checkR looks at a target without running it.
func checkR(at string, task launch.Task, r *report) {
	i := strings.LastIndexByte(task.R, ':')
	if i <= 0 || !strings.HasSuffix(task.R[:i], ".R") || !rName.MatchString(task.R[i+1:]) {
		r.add(at, "%q does not say which function; write it as file.R:function", task.R)
		return
	}
	function := task.R[i+1:]
	if path, text, ok := source(at, task.R[:i], task, r); ok && !strings.Contains(text, function) {
		r.add(at, "%s has no function %s", path, function)
	}
}
