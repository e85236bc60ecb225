package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

func (f *mapFlags) check(c *cobra.Command, args []string) error {
	var m mistakes
	changed := c.Flags().Changed
	f.readTasks(&m, c, args)
	f.checkItems(&m, changed)
	f.checkInput(&m, c)
	err := starter.CheckID(f.id)
	m.when(changed("id") && err != nil, "--id: %v", err)
	m.when(f.detach && f.local, "--detach does not go with --local, whose server ends with the command; start `gpumux dev` for maps in the background")
	m.when(f.detach && changed("out"), "--out does not go with --detach; fetch the results later with `gpumux results`")
	f.checkFiles(&m)
	m.when(f.unordered && f.out != "-", "--unordered goes with --out -; a file of results is in order")
	m.when(f.openAI && f.input.WithItem, "--with-item does not go with lines of OpenAI's batches, which have no place for items; leave it out, or name --out FILE.parquet")
	m.when(f.noWait && f.local, "--no-wait does not go with --local, which brings its own worker")
	f.checkOut(&m)
	return m.err()
}

func (f *mapFlags) checkOut(m *mistakes) {
	are := func(in string) bool { return sameFile(in, f.out) }
	m.when(slices.ContainsFunc(f.source.in, are), "--out %s is the input itself; name another file", f.out)
	m.when(slices.ContainsFunc(f.skip, are), "--out %s is the file of --skip, whose results it would replace; name another", f.out)
	m.when(len(f.skip) > 0 && f.source.numbers != "", "--skip does not go with --range")
	m.when(len(f.skip) > 0 && f.input.Key == "" && !f.input.WithItem, "--skip goes with --key, or --with-item: by that it knows which items have a result")
	m.when(slices.Contains(f.skip, "-"), "--skip takes files, and not standard input")
}

func (f *mapFlags) checkFiles(m *mistakes) {
	switch {
	case f.files == "":
	case f.detach:
		m.add("--files does not go with --detach; fetch the files later with `gpumux results ID --files DIR`")
	case len(*m) == 0:
		err := checkFolder(f.files)
		m.when(err != nil, "%v", err)
	}
}

var capital = regexp.MustCompile(`[A-Z]`)
var exitStatus = regexp.MustCompile(`^([1-9]\d?|1\d\d|2[0-4]\d|25[0-5])$`)

func flagOf(field string) string {
	switch {
	case field == "ladder":
		return "--pool:"
	case slices.Contains(optionKeys, field):
		return "--option " + field
	}
	return "--" + capital.ReplaceAllStringFunc(field, func(c string) string { return "-" + strings.ToLower(c) })
}

// checkInput finds the mistakes that need neither files nor a server.
func (f *mapFlags) checkInput(m *mistakes, c *cobra.Command) {
	in := f.input
	in.Task, in.Stages, in.Items, in.Arg = "task", nil, []json.RawMessage{}, nil
	var bad *gpumux.InputError
	if errors.As(in.Validate(), &bad) {
		for _, p := range bad.Problems {
			field, _, _ := strings.Cut(p.Field, "[")
			m.add("%s %s", flagOf(field), p.Message)
		}
	} else if in.Task, in.Stages = "", f.input.Stages; in.Stages != nil && errors.As(in.Validate(), &bad) {
		for _, p := range bad.Problems {
			at, field := 0, p.Field
			_, _ = fmt.Sscanf(p.Field, "stages[%d].%s", &at, &field)
			m.add("TASK %s: %s %s", in.Stages[at].Task, field, p.Message)
		}
	}
	fresh := f.task.Fresh
	m.when(fresh != "" && fresh != string(launch.Fork) && fresh != string(launch.Spawn), "--fresh %q is unknown; use fork or spawn", fresh)
	switch out := f.task.Output; {
	case out != "" && out != "json" && out != "text":
		m.add("--output %q is unknown; use json or text", out)
	case out != "" && f.local && len(f.task.Command) == 0:
		m.add("--output is for a command after --; a function returns what its result is")
	}
	c.Flags().Visit(func(flag *pflag.Flag) {
		empty := strings.Trim(flag.Value.String(), `[]"`) == "" // as from a variable that is not set
		switch flag.Name {
		case "in", "range", "glob", "key", "pool", "retry-on", "skip":
			m.when(empty, "--%s is empty", flag.Name)
		case "slots", "gpus-per-slot", "devices", "memory", "reserve", "sharing", "python", "pass-env", "start-timeout", "fresh", "output", "explain-oom":
			m.when(!f.local, "--%s goes with --local; elsewhere the worker's file says it", flag.Name)
		case "workers", "listen", "no-worker":
			m.when(!f.local, "--%s goes with --local; the workers of a server are there already", flag.Name)
			m.when(empty, "--%s is empty", flag.Name)
		case "address", "namespace", "store":
			m.when(f.local, "--%s does not go with --local, which has a server and a store of its own", flag.Name)
		}
	})
	m.when(f.local && f.noWorker && f.workers == "" && f.listen == "", "--no-worker leaves the map without any: give --workers, or --listen and start some")
	f.pool.Mode = f.input.Mode
	again := slices.ContainsFunc(f.input.Steps(), func(step gpumux.MapInput) bool { return step.Attempts > 1 })
	m.when(f.input.Backoff > 0 && !again, "--backoff goes with --attempts 2 or more: without it no item is tried again")
	m.when(len(f.input.RetryOn) > 0 && !again && c.Name() != "retry", "--retry-on goes with --attempts 2 or more: without it no item is tried again")
	m.when(f.input.Attempts == 0, "--attempts 0 is outside 1 to %d", gpumux.MaxAttempts) // in the field it is the default
}

func (f *taskFlags) readTask(m *mistakes, c *cobra.Command, args []string) {
	switch dash := c.ArgsLenAtDash(); {
	case dash < 0 && len(args) == 0:
		m.add("TASK is missing; give %sfile.py:function", text.When(c.Name() != "stream", "its name, such as embed, or with --local "))
	case dash < 0:
		f.input.Task = args[0]
		m.when(strings.TrimSpace(args[0]) == "", "TASK is empty")
		m.when(len(args) > 1, "more than one TASK: %s; `gpumux map` takes several, its stages; files are named with --in", strings.Join(args, " "))
	case !f.local:
		m.add("a command after -- goes with --local; elsewhere the worker's file names it as a task")
	case dash == len(args):
		m.add("no command after --")
	default:
		f.task.Command = args[dash:]
		m.when(dash > 0, "give either TASK or a command after --, not both: %s", args[0])
		m.when(slices.ContainsFunc(f.input.RetryOn, func(status string) bool { return !exitStatus.MatchString(status) }),
			"--retry-on takes exit statuses of a command, 1 to 255, such as 75,111")
	}
}

// checkItems finds every mistake in where the items come from, and reads the delimiter.
func (f *mapFlags) checkItems(m *mistakes, changed func(string) bool) {
	s := &f.source
	sources := slices.DeleteFunc([]string{"in", "range", "glob"}, func(flag string) bool { return !changed(flag) })
	m.when(len(sources) == 0, "nothing to map over; give one of --in FILE, --range START:END and --glob PATTERN")
	m.when(len(sources) > 1, "give only one of --in, --range and --glob")
	for _, flag := range []string{"columns", "text", "delimiter", "key", "lines"} {
		m.when(changed(flag) && !changed("in"), "--%s goes with --in", flag)
	}
	if changed("delimiter") {
		var err error
		s.delimiter, err = items.ParseDelimiter(f.delimiter)
		m.when(err != nil, "--delimiter: %v", err)
	}
	for _, in := range s.in {
		err := names.Columns(in, s.columns)
		m.when(err != nil && !isMany(in), "--columns %v", err)
	}
}

func sameFile(a, b string) bool {
	one, err1 := os.Stat(a)
	two, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && one.Mode().IsRegular() && os.SameFile(one, two)
}
