// Package launch says how the process of a task is started: its words, its environment
// and the edition of its code.
//
// It owns Task and the questions to file systems before a start. These may hang, so each
// ends with its context or its limit. It starts no task process and knows neither slots
// nor items' results.
package launch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
)

// Fresh is how a process for one item comes to be.
type Fresh string

const (
	// Fork takes it from a template, where that is safe; else it is Spawn.
	Fork Fresh = "fork"
	// Spawn starts a new interpreter, which imports the task again.
	Spawn Fresh = "spawn"
)

// Task says how a task's process is started. One of Python, R, Command and Program is
// set.
type Task struct {
	// Name is the task's name in maps.
	Name string
	// Python is "module:function" or "file.py:function", found from Dir.
	Python string
	// OwnModule refuses a function that the module imported from elsewhere.
	OwnModule bool
	// R is "file.R:function", found from Dir.
	R string
	// Interpreter is the Python to start, or R's Rscript. Default "python3" or "Rscript".
	Interpreter string
	// Command is a program and its arguments, run once per item: the item on standard input
	// and in the place of {}, the result on standard output.
	Command []string
	// Text takes a command's output as one JSON string instead of as JSON.
	Text bool
	// Program is a task process that speaks the wire.
	Program []string
	// Dir is the working folder. Default: the worker's.
	Dir string
	// Env adds to the environment, PassEnv names what is passed on from the worker's.
	Env     map[string]string
	PassEnv []string
	// Mode is the task's own mode. Default: the slot's.
	Mode gpumux.Mode
	// Fresh is how the process of a fresh item comes to be. Default Fork.
	Fresh Fresh
	// ExplainOOM has PyTorch remember which lines allocate.
	ExplainOOM bool
	// StartLimit bounds a start, imports included. Default: the slot's.
	StartLimit time.Duration
	// Timeout bounds one item, or one micro-batch. Default: none.
	Timeout time.Duration
	// Recycle replaces a persistent process after so many items. Default: never.
	Recycle int
}

// Argv are the words that start the task's process: its own program, or its Python or R
// with its runtime, a main.py or main.R.
func (t Task) Argv(python, r string) []string {
	switch {
	case t.R != "":
		// A Python within R takes its limits from the other runtime.
		return []string{t.interpreter(), "--no-save", r, python}
	case t.Python != "":
		return []string{t.interpreter(), python}
	}
	return t.Program
}

func (t Task) interpreter() string {
	if t.R != "" {
		return cmp.Or(t.Interpreter, "Rscript")
	}
	return cmp.Or(t.Interpreter, "python3")
}

// Same reports whether a process of the task can serve the other.
func (t Task) Same(other Task) bool { return reflect.DeepEqual(t, other) }

// Target is the function that a process of the task is to load, or empty.
func (t Task) Target() string { return cmp.Or(t.Python, t.R) }

const (
	placeholder = "{}"
	// longestWord is the most bytes that Linux takes in a word of a command, without NUL.
	longestWord = 128<<10 - 1
)

// CommandArgv are the command's words with the item in place of {}: text, or JSON.
func (t Task) CommandArgv(item json.RawMessage) ([]string, error) {
	command := t.Command
	if !slices.ContainsFunc(command[1:], func(word string) bool { return strings.Contains(word, placeholder) }) {
		return command, nil
	}
	text := string(item)
	if text != "" && text[0] == '"' {
		if err := json.Unmarshal(item, &text); err != nil {
			return nil, fmt.Errorf("the item is no text for {}: %w", err)
		}
	}
	if strings.ContainsRune(text, 0) {
		return nil, fmt.Errorf("the item holds a NUL character, which no word of a command can")
	}
	all := slices.Clone(command)
	for i, word := range all[1:] {
		all[i+1] = strings.ReplaceAll(word, placeholder, text)
		if len(all[i+1]) > longestWord {
			return nil, fmt.Errorf("a word of the command would have %s with the item in it, more than the %s that the system takes; "+
				"read the item from standard input instead", gpumux.Size(len(all[i+1])), gpumux.Size(longestWord))
		}
	}
	return all, nil
}
