package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/workers/config"
)

type mapFlags struct {
	taskFlags
	source source
	// delimiter is the source's as it was written.
	delimiter   string
	out, schema string
	// files is a folder for what items keep.
	files string
	id    string
	// keep are the stages whose values stay.
	keep []string
	// skip are files of results, whose items are left out.
	skip []string
	// unordered writes each result to standard output as soon as it is there.
	detach, retry, json, quiet, exact, unordered, openAI bool
}

// taskFlags say where and how a task runs; checkInput completes what they fill.
type taskFlags struct {
	input gpumux.MapInput
	// argFile is the file of an argument with arrays.
	argFile string
	// pool and task are for a worker in this process.
	pool   config.Pool
	task   config.Task
	local  bool
	noWait bool
	// listen, workers and noWorker are for workers of other hosts.
	listen, workers string
	noWorker        bool
	// slots are the pools that --slots names. assigned says to which stages they went.
	slots    []config.Pool
	assigned string
}

// registerPool registers flags of map and retry, whose default is the map's.
func (f *taskFlags) registerPool(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.input.Ladder, "pool", nil, "pools to use, first choice first, such as gpu,cpu (default gpu; with --local what the machine has)")
	flags.BoolVar(&f.noWait, "no-wait", false, "fail when no worker serves the pool, instead of waiting for one")
}

func (f *taskFlags) registerMode(flags *pflag.FlagSet) {
	flags.StringVar((*string)(&f.input.Mode), "mode", "", "persistent (the process stays) or fresh (one process per item); default: the task's")
	flags.DurationVar((*time.Duration)(&f.input.Timeout), "timeout", 0, "longest time of one item, such as 90s (default: the task's)")
}

// registerHere registers the flags of slots in this process, and of what runs in any
// slot; local goes before the help of the former.
func (f *taskFlags) registerHere(flags *pflag.FlagSet, local string) {
	f.registerMode(flags)
	flags.Func("arg", "what all items share, such as a configuration: a `file` of JSON, or JSON; gpumux.arg() in the task, the arguments of a class, else GPUMUX_ARG, or GPUMUX_ARG_FILE if it is large", f.parseArg)
	f.registerSlots(flags, local)
	flags.Func("memory", local+"memory `budget` of a slot, such as 8GiB", f.parseMemory)
	flags.Func("reserve", local+"`memory` of each device that stays free for others, such as 1GiB; needs --memory",
		func(text string) error { return f.pool.Reserve.UnmarshalText([]byte(text)) })
	flags.IntVar(&f.pool.GPUsPerSlot, "gpus-per-slot", 0, local+"GPUs of one slot, such as 2 for a model that is split; --slots counts per such group (default 1)")
	flags.StringVar(&f.task.Output, "output", "", "with a command after --: json (default), or text: what it prints is the result, a string")
	flags.BoolVar(&f.task.ExplainOOM, "explain-oom", false, local+"PyTorch: say in faults of memory which lines allocated what was held, at some 2 µs per allocation")
	flags.StringVar(&f.task.Fresh, "fresh", "", local+"fork (default) or spawn a new interpreter for every item of mode fresh")
}

func (f *taskFlags) registerSlots(flags *pflag.FlagSet, local string) {
	flags.Func("slots", local+slotsUsage, f.parseSlots)
	flags.StringSliceVar((*[]string)(&f.pool.Devices), "devices", nil, local+"the GPUs to use, such as 0,2 (default all); "+devicesUsage)
	flags.StringVar(&f.pool.Sharing, "sharing", "", local+sharingUsage)
	flags.StringVar(&f.task.Interpreter, "python", "", local+pythonUsage)
	flags.StringSliceVar(&f.task.PassEnv, "pass-env", nil, local+"further variables of this environment that the task sees, such as HF_TOKEN")
	flags.DurationVar((*time.Duration)(&f.task.Start), "start-timeout", 0, local+"longest time that a process may take to start, with what the import loads or downloads, such as 30m (default 5m)")
}

const devicesUsage = "also UUIDs, and cpu"

const pythonUsage = "the Python to use (default python3)"

const sharingUsage = "how slots share a GPU: default (by turns), mps (side by side) or mig"

const slotsUsage = "slots per device, or auto to find the best `number` by measurement (default 1 per GPU; on the CPU one per core, at most 4); for several pools cpu=6,gpu=2"

func (f *taskFlags) parseMemory(text string) error {
	const smallest = 1 << 20
	err := f.pool.Memory.UnmarshalText([]byte(text))
	if err == nil && f.pool.Memory < smallest {
		err = fmt.Errorf("%s is %s, in which no process runs; write it with its unit, such as 8GiB", text, f.pool.Memory)
	}
	return err
}

const quotedUsage = `a name with a comma as '"price, EUR"'`

func (f *mapFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&f.source.in, "in", nil, "items: JSON lines, .csv or .tsv, plain, .gz or .zst, .parquet: a `file`, the files of a folder or a pattern such as 'data/*.csv', - for standard input, or a URL such as s3://bucket/items.jsonl or s3://bucket/data/; given again, the items after those")
	flags.StringSliceVar(&f.source.columns, "columns", nil, "with --in: the columns of Parquet files that items have, such as id,text (default all); "+quotedUsage)
	flags.StringVar(&f.source.numbers, "range", "", "items: the numbers START:END without END, such as 0:1000")
	flags.StringArrayVar(&f.source.glob, "glob", nil, "items: the paths of the files that a `pattern` fits, not what is in them, such as 'images/*.png' or 'data/**/*.csv'; may be given again")
	f.registerText(flags)
	flags.StringArrayVar(&f.skip, "skip", nil, "leave out the items that have a value in `files` of results, as --in names them, such as 'done/*.parquet': known by --key, or as a whole by --with-item; may be given again")
	f.registerPool(flags)
	flags.DurationVar((*time.Duration)(&f.input.Patience), "patience", 0, "how long a pool may lack a worker with a healthy device before the next one takes its work (default 1m)")
	flags.BoolVar(&f.local, "local", false, "start a server and a worker for this command alone; TASK is file.py:function")
	f.registerHere(flags, "with --local: ")
	flags.StringVar(&f.workers, "workers", "", "with --local: a shell `command` that starts workers on other hosts and stays with them, such as 'srun gpumux worker -f {}'; {} is their file")
	flags.StringVar(&f.listen, "listen", "", "with --local: the `HOST[:PORT]` at which workers of other hosts reach this one (default with --workers: its name)")
	flags.BoolVar(&f.noWorker, "no-worker", false, "with --local: run no items on this machine; needs --workers or --listen")
	f.registerRun(flags)
	flags.DurationVar((*time.Duration)(&f.input.Backoff), "backoff", 0, "pause before an item that raised is tried again, without a slot; it doubles, up to 1m (default none)")
	flags.StringVar((*string)(&f.input.MaxFailures), "max-failures", "", "end when more items have failed than this `number`, such as 10 or 5%; 0: at the first")
	flags.Func("option", "what few maps need, as `KEY=VALUE`: see above; may be given again", f.parseOption)
	flags.BoolVar(&f.unordered, "unordered", false, unorderedUsage)
	flags.StringArrayVar(&f.keep, "keep", nil, "a `TASK`, a stage whose values stay when the map has ended, for the next one with other code in later stages; may be given again")
	flags.Func("stage", "", f.parseStage)
	_ = flags.MarkHidden("stage") // of gpumux's own clients
	flags.StringVar(&f.id, "id", "", "ID of the map (default: made of task, input and options)")
	flags.BoolVar(&f.retry, "retry", false, "of a finished map run the failed items again")
	registerExact(flags, &f.exact)
}

func (f *mapFlags) registerRun(flags *pflag.FlagSet) {
	flags.StringVar(&f.out, "out", "", "results: a file, JSON lines or .parquet; or - for standard output, where they come in order while the map runs (default: the pipe, else ./ID.results.jsonl)")
	flags.StringVar(&f.schema, "schema", "", schemaUsage)
	flags.StringVar(&f.files, "files", "", filesUsage)
	f.registerAttempts(flags)
	flags.BoolVar(&f.detach, "detach", false, "start the map, print its ID and leave")
	flags.BoolVar(&f.openAI, "openai", false, openAIUsage)
	flags.BoolVar(&f.json, "json", false, "print the summary as JSON on standard output; results go to a file")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
}

func (f *mapFlags) registerAttempts(flags *pflag.FlagSet) {
	flags.IntVar(&f.input.Attempts, "attempts", 1, "how often an item that raises is tried")
	flags.StringSliceVar(&f.input.RetryOn, "retry-on", nil, "with --attempts: the `exceptions` that are tried again, such as TimeoutError,openai.RateLimitError, or the exit statuses of a command (default all)")
}

func (f *mapFlags) registerText(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.source.text, "text", nil, "with --in: columns of CSV whose cells stay text, such as id for IDs like 007, 1.10 and 1e5; "+quotedUsage)
	flags.BoolVar(&f.source.lines, "lines", false, "with --in: every line of text is an item, a string")
	flags.StringVar(&f.delimiter, "delimiter", "", "with --in: it is CSV with this between its cells, such as ';' or tab")
	flags.StringVar(&f.input.Key, "key", "", "the `field` of the items, objects, that results have as \"key\", such as id")
	flags.BoolVar(&f.input.WithItem, "with-item", false, "results have their items, as \"item\"")
}

const (
	filesUsage     = "a `folder` for files that items keep with gpumux.save, as <index>/<name> (default with --local: ./ID.files; else they stay in the store)"
	quietUsage     = "no progress and no summary"
	openAIUsage    = "of a map of requests: lines in the form of OpenAI's batches"
	unorderedUsage = "each result as soon as it is there, in any order (map: with --out -; results: with --follow)"
)

func registerExact(flags *pflag.FlagSet, exact *bool) {
	flags.BoolVar(exact, "exact", false, "in JSON lines, NaN as docs/wire.md has it")
	_ = flags.MarkHidden("exact") // it is there
}

// optionKeys are the fields of a map's input that --option sets, by their names in JSON.
var optionKeys = []string{"chunk", "window", "priority", "fairnessKey", "fairnessWeight", "mapTimeout", "poolTimeout", "edition"}

func (f *mapFlags) parseOption(text string) error {
	key, value, _ := strings.Cut(text, "=")
	if !slices.Contains(optionKeys, key) || value == "" {
		return fmt.Errorf("write KEY=VALUE, with a KEY of %s", strings.Join(optionKeys, ", "))
	}
	if key == "edition" && value != gpumux.AnyEdition {
		return errors.New("edition is any, or the code's own")
	}
	type fields gpumux.MapInput // without the method that forgets other fields
	var wrong error
	for _, each := range []string{value, strconv.Quote(value)} { // a number, or else text
		data, err := json.Marshal(map[string]json.RawMessage{key: json.RawMessage(each)})
		if err == nil {
			err = json.Unmarshal(data, (*fields)(&f.input))
		}
		if err == nil {
			return nil
		}
		wrong = cmp.Or(wrong, err)
	}
	return fmt.Errorf("%s is no value of %s: %w", value, key, wrong)
}

func (f *taskFlags) parseArg(text string) error {
	if name, err := arraysIn(text); name != "" || err != nil {
		f.input.ArgFile, f.argFile = name, text
		return err
	}
	read, unread := os.ReadFile(text)
	if unread != nil {
		read = []byte(text)
	}
	var plain bytes.Buffer
	if err := json.Compact(&plain, read); err != nil && unread != nil {
		return fmt.Errorf("%.80q is neither a file that can be read nor JSON", text)
	} else if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if n := plain.Len(); n > gpumux.MaxArgFile {
		return fmt.Errorf("%s of JSON are more than %s; put them in a file that the task reads, and give its path", gpumux.Size(n), gpumux.Size(gpumux.MaxArgFile))
	}
	f.input.Arg = plain.Bytes()
	return nil
}

// arraysIn names a file with arrays, which the client in Python wrote, as a store does.
// It returns "" for any other.
func arraysIn(path string) (name string, err error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", nil // it is JSON, or comes from a pipe, which is read once
	}
	file, err := os.Open(path)
	if err != nil {
		return "", nil // who reads it as JSON says so
	}
	defer file.Close()
	head := make([]byte, len(names.ArraysHead))
	if _, err := io.ReadFull(file, head); err != nil || string(head) != names.ArraysHead {
		return "", nil
	}
	sum := sha256.New()
	sum.Write(head)
	_, err = io.Copy(sum, file)
	return names.Sources + "/" + hex.EncodeToString(sum.Sum(nil)) + ".arg", err
}

// optionsHere are for a worker in this process that runs the task of a command, or its
// stages, which get their pools.
func (f taskFlags) optionsHere(ctx context.Context, a *app, in *gpumux.MapInput) (local.Options, error) {
	o := a.localOptions(true)
	o.NoWorker, o.Output = f.noWorker, a.console
	if f.workers != "" {
		o.Workers = func(file string) string { return strings.ReplaceAll(f.workers, "{}", shellLine([]string{file})) }
	}
	var err error
	if f.workers != "" || f.listen != "" {
		if err = listenAt(&o, cmp.Or(f.listen, ":0"), 0); err != nil {
			return o, err
		}
	}
	f.task.PassEnv = passedHere(a, f.task.PassEnv)
	steps, then := in.Steps(), []string{}
	for _, step := range steps[1:] {
		then = append(then, step.Task)
	}
	if o.Task, err = local.FindTask(steps[0].Task, f.task, then...); err != nil {
		return o, err
	}
	names := steps[0].Ladder
	switch {
	case len(names) > 0:
		names = in.Pools()
	case in.Stages == nil:
		names = f.slotted()
	}
	noGPU, err := o.Place(ctx, names, f.pool)
	if noGPU != "" && o.Host != "" {
		return o, usage("%s; and so workers of other hosts would use none: give --no-worker, or --pool cpu", noGPU)
	}
	why, _, _ := strings.Cut(noGPU, "; ") // what follows is for a worker's file
	if noGPU != "" && len(names) == 0 {
		a.console.Note("note: the CPU runs it: %s", report.OneLine(why, 300))
	}
	for _, name := range names {
		if noGPU != "" && !local.OnCPU(name) {
			a.console.Say("note: pool %s runs on the CPU, for want of a GPU: %s", name, report.OneLine(noGPU, 300))
		}
	}
	if err == nil && in.Stages != nil && len(names) == 0 {
		err = ownPools(&o, in.Stages)
		f.assigned = placesOf(in.Stages)
	}
	if err == nil {
		err = f.size(o.Pools)
	}
	if err == nil && f.assigned != "" {
		a.console.Note("%s", f.assigned)
	}
	return o, err
}

// passedHere adds the harmless variables of this environment to those of --pass-env, and
// says which a user may miss.
func passedHere(a *app, asked []string) []string {
	pass, left := local.PassedOn(asked)
	if len(left) > 0 {
		const limit = 6
		names, flag := strings.Join(left, ", "), strings.Join(left, ",")
		if more := len(left) - limit; more > 0 {
			names, flag = fmt.Sprintf("%s and %d more", strings.Join(left[:limit], ", "), more), "NAME,…"
		}
		a.console.Note("note: the task does not see %s of this environment; to pass on: --pass-env %s", names, flag)
	}
	return pass
}

// flagsHere has the flag that sets a field of the worker's configuration.
var flagsHere = map[string]string{"memory": "--memory", "reserve": "--reserve", "slots": "--slots", "gpus_per_slot": "--gpus-per-slot", "devices": "--devices", "sharing": "--sharing",
	"interpreter": "--python", "pass_env": "--pass-env", "start": "--start-timeout", "python_dir": "--tasks", "command": "the command"}

func inFlags(err error) error {
	var found *config.Error
	if !errors.As(err, &found) || found.File != "" {
		return err
	}
	var m mistakes
	for _, p := range found.Problems {
		flag := "TASK"
		if strings.HasPrefix(p.Field, "pools") {
			flag = "--pool"
		}
		field := strings.TrimRight(p.Field[strings.LastIndex(p.Field, ".")+1:], "[]0123456789")
		m.add("%s: %s", cmp.Or(flagsHere[field], flag), strings.ReplaceAll(p.Message, "sharing: ", "--sharing "))
	}
	return m.err()
}
