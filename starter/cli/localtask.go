package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/edition"
	"github.com/gpumux/gpumux/workers/slot"
)

// localTask is TASK of a command with --local: something of the current folder rather than a name that workers know.
type localTask struct {
	name   string
	config config.Task
	// dir is the current folder; scope tells tasks of the same name in different places apart.
	dir, scope string
	// code is what the task is written in, edition that of it when the command began.
	code    edition.Code
	edition string
	// reduce is the task of --reduce, when that is one.
	reduce *localTask
}

// tasks are what the worker of the command knows.
func (t localTask) tasks() map[string]config.Task {
	tasks := map[string]config.Task{t.name: t.config}
	if t.reduce != nil {
		tasks[t.reduce.name] = t.reduce.config
	}
	return tasks
}

// reduceWith makes a task of --reduce when it is one, and puts its name in place.
func (t *localTask) reduceWith(reduce *string, f localFlags) error {
	if *reduce == "" || gpumux.OwnReduce(*reduce) {
		return nil
	}
	other, err := parseLocalTask(*reduce, nil, f, "")
	if err != nil {
		return usage("--reduce %s: give one of %s, or file.py:function or module:function of a function that makes one value of a pair [a, b]",
			*reduce, strings.Join(gpumux.Reduces(), ", "))
	}
	t.reduce, *reduce = &other, other.name
	return nil
}

// parseLocalTask reads TASK, or the command after --.
func parseLocalTask(task string, command []string, f localFlags, mode gpumux.Mode) (localTask, error) {
	dir, err := os.Getwd()
	if err != nil {
		return localTask{}, unavailableError{err}
	}
	t := localTask{dir: dir, config: config.Task{PassEnv: f.passEnv}}
	if len(command) > 0 {
		if f.python != "" {
			return t, usage("--python is for a Python TASK; the command after -- starts by itself")
		}
		if f.fresh != "" {
			return t, usage("--fresh is for a Python TASK; the command after -- starts anew for every item")
		}
		if mode == gpumux.Persistent {
			return t, usage("--mode persistent: a command runs once per item, so it is always fresh")
		}
		t.name = filepath.Base(command[0])
		t.config.Command, t.config.Output = command, f.output
		t.scope = strings.Join(append([]string{dir}, command...), "\x00")
		if f.output == "text" {
			t.scope += "\x00\x00text" // what it prints is another result
		}
		t.read(edition.Code{Dir: dir, Command: command})
		return t, nil
	}
	if f.output != "" {
		return t, usage("--output is for a command after --; a function returns what its result is")
	}
	target, function, ok := cutLast(task, ":")
	if !ok || target == "" || function == "" {
		return t, usage("TASK %q: with --local write it as file.py:function or module:function, or give a command after --", task)
	}
	t.name, t.config.Python, t.config.Interpreter, t.config.Fresh = task, task, f.python, slot.Fresh(f.fresh)
	t.scope = dir
	if strings.HasSuffix(target, ".py") {
		file := target
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if _, err := os.Stat(file); err != nil {
			return t, usage("TASK %s: there is no file %s", task, target)
		}
		t.name = filepath.Base(target) + ":" + function
		t.scope = filepath.Dir(file)
	}
	t.read(edition.Code{Dir: dir, Target: task})
	return t, nil
}

// cutLast is strings.Cut at the last separator.
func cutLast(text, separator string) (before, after string, ok bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

func (t *localTask) read(code edition.Code) { t.code, t.edition = code, code.Named() }
