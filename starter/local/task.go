package local

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/edition"
	"github.com/gpumux/gpumux/workers/slot/launch"
)

// Task is something of the current folder rather than a name that workers know.
type Task struct {
	// Name is what maps and workers call it.
	Name string
	// Edition tells versions of its code apart, and of its reduce's where that is a task, too. It is of the time of FindTask.
	Edition string

	config config.Task
	// dir is the folder that was current; scope tells tasks of the same name in different places apart.
	dir, scope string
	code       edition.Code
	// wanted is the edition that the processes of a map must have.
	wanted string
	reduce *Task
}

// TaskOptions say how a task runs where the defaults do not do.
type TaskOptions struct {
	// Command is a program and its arguments, which is the task then. Output is json (default) or text: what it prints is the result.
	Command []string
	Output  string
	// Python is the interpreter of a function. Default python3.
	Python string
	// Fresh is how the process of a fresh item comes to be. Default launch.Fork.
	Fresh launch.Fresh
	// Mode is the map's.
	Mode gpumux.Mode
	// PassEnv are the variables of this environment that the task sees.
	PassEnv []string
	// Reduce is the map's: one of contract.Reduces, or another task.
	Reduce string
}

// FindTask finds a function, written as file.py:function, module:function or file.R:function, or a command. Its errors are *Mistake.
func FindTask(name string, o TaskOptions) (*Task, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, unavailable("%w", err)
	}
	t := &Task{dir: dir, config: config.Task{PassEnv: o.PassEnv}}
	if len(o.Command) > 0 {
		err = t.command(o)
	} else {
		err = t.function(name, o)
	}
	if err != nil {
		return nil, err
	}
	t.Edition, t.wanted = t.code.Named(), t.code.Edition()
	if o.Reduce == "" || contract.OwnReduce(o.Reduce) {
		return t, nil
	}
	t.reduce, err = FindTask(o.Reduce, TaskOptions{Python: o.Python, Fresh: o.Fresh, PassEnv: o.PassEnv})
	if err != nil || o.Output != "" {
		return nil, mistake("--reduce %s: give one of %s, or file.py:function, module:function or file.R:function of a function that makes one value of a pair [a, b]",
			o.Reduce, strings.Join(contract.Reduces(), ", "))
	}
	t.Edition = edition.Join(t.Edition, t.reduce.Edition)
	return t, nil
}

// command makes a task of a command.
func (t *Task) command(o TaskOptions) error {
	switch {
	case o.Python != "":
		return mistake("--python is for a Python TASK; the command after -- starts by itself")
	case o.Fresh != "":
		return mistake("--fresh is for a Python TASK; the command after -- starts anew for every item")
	case o.Mode == gpumux.Persistent:
		return mistake("--mode persistent: a command runs once per item, so it is always fresh")
	}
	t.Name = filepath.Base(o.Command[0])
	t.config.Command, t.config.Output = o.Command, o.Output
	t.scope = strings.Join(append([]string{t.dir}, o.Command...), "\x00")
	if o.Output == "text" {
		t.scope += "\x00\x00text" // what it prints is another result
	}
	t.code = edition.Code{Dir: t.dir, Command: o.Command}
	return nil
}

// function makes a task of file.py:function, module:function or file.R:function.
func (t *Task) function(name string, o TaskOptions) error {
	if o.Output != "" {
		return mistake("--output is for a command after --; a function returns what its result is")
	}
	at := strings.LastIndex(name, ":")
	if at < 1 || at == len(name)-1 {
		return mistake("TASK %q: with --local write it as file.py:function, module:function or file.R:function, or give a command after --", name)
	}
	target := name[:at]
	t.Name, t.scope = name, t.dir
	isR := strings.HasSuffix(target, ".R")
	switch {
	case !isR:
		t.config.Python, t.config.Interpreter, t.config.Fresh = name, o.Python, o.Fresh
	case o.Python != "" || o.Fresh != "":
		return mistake("TASK %s is R; --python and --fresh are for Python", name)
	default:
		t.config.R = name
	}
	if isR || strings.HasSuffix(target, ".py") {
		file := target
		if !filepath.IsAbs(file) {
			file = filepath.Join(t.dir, file)
		}
		if _, err := os.Stat(file); err != nil {
			return mistake("TASK %s: there is no file %s", name, target)
		}
		t.Name = filepath.Base(target) + name[at:]
		t.scope = filepath.Dir(file)
	}
	t.code = edition.Code{Dir: t.dir, Target: name}
	return nil
}

// Files are the paths of the files that the task is made of.
func (t *Task) Files() []string { return t.code.Files() }

// tasks are what a worker knows that runs the task.
func (t *Task) tasks() map[string]config.Task {
	tasks := map[string]config.Task{t.Name: t.config}
	if t.reduce != nil {
		tasks[t.reduce.Name] = t.reduce.config
	}
	return tasks
}

// put makes it the task of a map.
func (t *Task) put(m *starter.Map) {
	m.Input.Task, m.Scope, m.Edition, m.Input.Edition = t.Name, t.scope, t.Edition, t.wanted
	if t.reduce != nil {
		m.Input.Reduce = t.reduce.Name
	}
}
