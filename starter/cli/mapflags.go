package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/files"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/slot/launch"
)

// mapFlags are the flags of a map as they were given.
type mapFlags struct {
	taskFlags
	// in are the inputs, one after the other.
	in             []string
	rng, glob, out string
	// files is a folder for what items keep.
	files     string
	delimiter string
	columns   []string
	// lines takes each line of the inputs as an item, a string.
	lines bool
	// comma is the delimiter as it was read, or 0.
	comma         rune
	attempts      int
	backoff       time.Duration
	failFast      bool
	maxFailures   string
	chunk, window int
	priority      int
	fairness      string
	reduce        string
	key           string
	withItem      bool
	exact         bool
	cache         bool
	id            string
	detach        bool
	retry         bool
	json, quiet   bool
	// unordered writes each result to standard output as soon as it is there.
	unordered bool
	// follow is a file that grows, in place of in; idle is how long it may pause.
	follow string
	idle   time.Duration
}

// taskFlags say where and how a task runs; `map` and `run` share them.
type taskFlags struct {
	localFlags
	pools    []string
	on       string
	patience time.Duration
	mode     string
	timeout  time.Duration
	arg      json.RawMessage
	noWait   bool
}

// localFlags describe the worker of a --local command.
type localFlags struct {
	local   bool
	slots   config.Slots
	devices []string
	memory  string
	reserve string
	sharing string
	data    string
	python  string
	passEnv []string
	fresh   string
	output  string
}

func (f *taskFlags) register(flags *pflag.FlagSet) {
	const local = "with --local: "
	f.registerPools(flags, "; with --local what the machine has", ", or with --local also its number")
	flags.BoolVar(&f.noWait, "no-wait", false, "fail when no worker serves the pool, instead of waiting for one")
	flags.BoolVar(&f.local, "local", false, "start a server and a worker for this command alone; TASK is file.py:function")
	flags.StringVar(&f.data, "data", "", local+"folder of the state (default below ~/.local/state/gpumux/local)")
	f.registerHere(flags, local)
}

// registerPools registers the flags that say where a task runs; the words are those about --local.
func (f *taskFlags) registerPools(flags *pflag.FlagSet, poolsHere, numberHere string) {
	flags.StringSliceVar(&f.pools, "pool", nil, "pools to use, first choice first, such as gpu,cpu (default gpu"+poolsHere+")")
	flags.StringVar(&f.on, "on", "", "run on one `device` alone: its UUID or the start of it"+numberHere)
	flags.DurationVar(&f.patience, "patience", 0, "how long a pool may lack a worker with a healthy device before the next one takes its work (default 1m)")
}

// registerHow registers the flags that say how a task runs.
func (f *taskFlags) registerHow(flags *pflag.FlagSet) {
	flags.StringVar(&f.mode, "mode", "", "persistent (the process stays) or fresh (one process per item); default: the task's")
	flags.DurationVar(&f.timeout, "timeout", 0, "longest time of one item, such as 90s (default: the task's)")
	flags.Func("arg", "what all items share, such as a configuration: a `file` of JSON, or JSON; gpumux.arg() in the task, else GPUMUX_ARG", f.parseArg)
}

// registerHere registers the flags of what runs in slots of this process; local stands before the help of those that need --local.
func (f *taskFlags) registerHere(flags *pflag.FlagSet, local string) {
	f.registerHow(flags)
	flags.Func("slots", local+slotsUsage, f.parseSlots)
	flags.StringSliceVar(&f.devices, "devices", nil, local+"the GPUs to use, such as 0,2 (default all); "+devicesUsage)
	flags.StringVar(&f.memory, "memory", "", local+"memory budget of a slot, such as 8GiB")
	flags.StringVar(&f.reserve, "reserve", "", local+"memory of each device that stays free for others, such as 1GiB; needs --memory")
	flags.StringVar(&f.sharing, "sharing", "", local+sharingUsage)
	flags.StringVar(&f.python, "python", "", local+"the Python to use (default python3)")
	flags.StringSliceVar(&f.passEnv, "pass-env", nil, local+"variables of this environment that the task sees, such as HF_HOME")
	flags.StringVar(&f.output, "output", "", "with a command after --: json (default), or text: what it prints is the result, a string")
	flags.StringVar(&f.fresh, "fresh", "", local+"fork (default) or spawn a new interpreter for every item of mode fresh")
}

// devicesUsage is the help of --devices.
const devicesUsage = "also UUIDs, and 'model=H100' or 'memory>=40GiB'"

// sharingUsage is the help of --sharing.
const sharingUsage = "how slots share a GPU: default (by turns), exclusive, mps (side by side) or mig"

// slotsUsage is the help of --slots.
const slotsUsage = "slots per device, or auto to find the best `number` by measurement (default 1 per GPU; on the CPU one per core, at most 4)"

func (f *localFlags) parseSlots(text string) error { return f.slots.UnmarshalText([]byte(text)) }

func (f *mapFlags) register(c *cobra.Command) {
	flags := c.Flags()
	f.registerItems(flags)
	flags.StringVar(&f.out, "out", "", "results: a file, JSON lines, compressed when it ends in .gz or .zst, or .parquet, .arrow, .feather or .npy; or - for standard output, where they come in order while the map runs (default: the pipe, else ./ID.results.jsonl)")
	registerExact(flags, &f.exact)
	f.registerFiles(flags, "default with --local: ./ID.files; else they stay in the store")
	f.taskFlags.register(flags)
	f.registerOptions(flags)
	flags.BoolVar(&f.unordered, "unordered", false, "with --out -: each result as soon as it is there, in any order")
	flags.StringVar(&f.id, "id", "", "ID of the map (default: made of task, input and options)")
	flags.BoolVar(&f.detach, "detach", false, "start the map, print its ID and leave")
	flags.BoolVar(&f.retry, "retry", false, "of a finished map run the failed items again")
	flags.BoolVar(&f.json, "json", false, "print the summary as JSON on standard output; results go to a file")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "no progress and no summary; with --reduce, and without --out, print its value alone")
}

// registerExact registers the flag of gpumux's own clients.
func registerExact(flags *pflag.FlagSet, exact *bool) {
	flags.BoolVar(exact, "exact", false, "in JSON lines, NaN as docs/wire.md has it")
	_ = flags.MarkHidden("exact") // it is there
}

// registerFiles registers the flag for what items keep.
func (f *mapFlags) registerFiles(flags *pflag.FlagSet, byDefault string) {
	flags.StringVar(&f.files, "files", "", "a `folder` for files that items keep with gpumux.save, as <index>/<name> ("+byDefault+")")
}

// registerItems registers the flags that say what the items are.
func (f *mapFlags) registerItems(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.in, "in", nil, "items: JSON lines, .csv or .tsv, plain, .gz or .zst, .parquet, .arrow or .feather: a `file`, - for standard input, a URL such as s3://bucket/items.jsonl, or results:ID for the values of a finished map; given again, the items after those")
	flags.StringSliceVar(&f.columns, "columns", nil, "with --in: the columns of Parquet or Arrow files that items have, such as id,text (default all)")
	flags.BoolVar(&f.lines, "lines", false, "with --in: every line of text is an item, a string")
	flags.StringVar(&f.delimiter, "delimiter", "", "with --in: it is CSV with this between its cells, such as ';' or tab")
	flags.StringVar(&f.rng, "range", "", "items: the numbers START:END without END, such as 0:1000")
	flags.StringVar(&f.glob, "glob", "", "items: a path per file, such as 'images/*.png' or 'data/**/*.csv'")
	f.registerKey(flags)
}

// registerOptions registers the flags that are fields of a map alone.
func (f *mapFlags) registerOptions(flags *pflag.FlagSet) {
	flags.BoolVar(&f.cache, "cache", false, "take the results of equal items from earlier maps of this task with --cache, and keep these; with --local it needs --data")
	flags.IntVar(&f.attempts, "attempts", 1, "how often an item that raises is tried")
	flags.DurationVar(&f.backoff, "backoff", 0, "pause before an item that raised is tried again, without a slot; it doubles, up to 1m (default none)")
	flags.BoolVar(&f.failFast, "fail-fast", false, "end at the first failed item")
	flags.StringVar(&f.maxFailures, "max-failures", "", "end when more items have failed than this `number`, such as 10 or 5%")
	flags.StringVar(&f.reduce, "reduce", "", "one value of all: sum, mean, min, max, count, or a task that makes one value of a pair [a, b]")
	flags.IntVar(&f.chunk, "chunk", 0, "items per chunk (default: learnt)")
	flags.IntVar(&f.window, "window", 0, "chunks in flight (default: learnt)")
	flags.IntVar(&f.priority, "priority", 0, "1 (first) to 5 (last) (default 3)")
	flags.StringVar(&f.fairness, "fairness-key", "", "maps of one key share the pools with those of other keys")
}

// leastMemory is far less than any process takes.
const leastMemory = 1 << 20

// flagOf are the flags of a map's fields.
var flagOf = map[string]string{"ladder": "--pool:", "patience": "--patience", "mode": "--mode", "timeout": "--timeout", "attempts": "--attempts",
	"backoff": "--backoff", "maxFailures": "--max-failures", "reduce": "--reduce", "key": "--key", "chunk": "--chunk", "window": "--window",
	"priority": "--priority", "fairnessKey": "--fairness-key"}

// inWords says what a map's fields may be in the words of flags.
var inWords = strings.NewReplacer("0 means no limit", "leave it away for no limit", "the first failure of failFast", "--fail-fast", "the server takes", "Temporal takes",
	fmt.Sprintf("0 (automatic) to %d", gpumux.MaxChunk), fmt.Sprintf("1 to %d (0: learnt)", gpumux.MaxChunk),
	fmt.Sprintf("0 (automatic) to %d", gpumux.MaxWindow), fmt.Sprintf("1 to %d (0: learnt)", gpumux.MaxWindow))

// inputMistakes adds what is wrong with the options of a map, whatever its task and its items are.
func inputMistakes(m *app.Mistakes, in gpumux.MapInput) {
	in.Task, in.Items, in.Cache = "task", []json.RawMessage{}, false
	var bad *gpumux.InputError
	if !errors.As(in.Validate(), &bad) {
		return
	}
	for _, p := range bad.Problems {
		field, _, _ := strings.Cut(p.Field, "[")
		m.Add("%s %s", cmp.Or(flagOf[field], field+":"), inWords.Replace(p.Message))
	}
}

// check finds every mistake that needs neither files nor a server, beside those of what is given to the map.
func (f *taskFlags) check(m *app.Mistakes, changed func(string) bool) {
	for _, pool := range f.pools {
		if f.local && strings.Contains(pool, "@") {
			m.Add("--pool %s: with --local name the pool alone, such as gpu", pool)
		}
	}
	if changed("pool") && len(f.pools) == 0 {
		m.Add("--pool is empty; name a pool, such as gpu")
	}
	if changed("patience") && len(f.pools) < 2 {
		m.Add("--patience goes with several pools, such as --pool gpu,cpu: there is none that could take over")
	}
	switch {
	case changed("on") && f.on == "":
		m.Add("--on is empty; give a device, such as GPU-5c89")
	case f.on != "" && len(f.devices) > 0:
		m.Add("--on and --devices are both given; --on is one device, --devices are several")
	case f.on != "" && len(f.pools) > 1:
		m.Add("--on is one device, and --pool several pools; give one pool")
	}
	if f.fresh != "" && f.fresh != string(launch.Fork) && f.fresh != string(launch.Spawn) {
		m.Add("--fresh %q is unknown; use fork or spawn", f.fresh)
	}
	if f.memory != "" {
		switch size, err := gpumux.ParseSize(f.memory); {
		case err != nil || size == 0:
			m.Add("--memory %q is not a size above 0; write it as 8GiB or 512MB", f.memory)
		case size < leastMemory:
			m.Add("--memory %s is %s, in which no process runs; write it with its unit, such as %[1]sGiB", f.memory, size)
		}
	}
	if _, err := gpumux.ParseSize(f.reserve); f.reserve != "" && err != nil {
		m.Add("--reserve %q is not a size; write it as 1GiB or 512MB", f.reserve)
	}
	if f.output != "" && f.output != "json" && f.output != "text" {
		m.Add("--output %q is unknown; use json or text", f.output)
	}
	for _, name := range []string{"slots", "devices", "memory", "reserve", "sharing", "data", "python", "pass-env", "fresh", "output"} {
		if !f.local && changed(name) {
			m.Add("--%s goes with --local; elsewhere the worker's file says it", name)
		}
	}
	if f.local {
		for _, name := range []string{"address", "namespace", "store"} {
			if changed(name) {
				m.Add("--%s does not go with --local, which has a server and a store of its own", name)
			}
		}
	}
}

// input is what the flags say of a map.
func (f *mapFlags) input() gpumux.MapInput {
	return gpumux.MapInput{Ladder: f.pools, Patience: gpumux.Duration(f.patience), Mode: gpumux.Mode(f.mode),
		Timeout: gpumux.Duration(f.timeout), Attempts: f.attempts, Backoff: gpumux.Duration(f.backoff), Arg: f.arg, FailFast: f.failFast,
		MaxFailures: gpumux.Tolerance(f.maxFailures), Reduce: f.reduce, Key: f.key, WithItem: f.withItem, Cache: f.cache, Chunk: f.chunk,
		Window: f.window, Priority: f.priority, FairnessKey: f.fairness}
}

// check finds every mistake in the flags of a map.
func (f *mapFlags) check(c *cobra.Command, args []string) (task string, command []string, err error) {
	var m app.Mistakes
	changed := c.Flags().Changed
	task, command = readTask(&m, c, args, f.local)
	f.checkItems(&m, changed)
	f.checkInput(&m, changed)
	if changed("id") {
		if err := starter.CheckID(f.id); err != nil {
			m.Add("--id: %v", err)
		}
	}
	if f.cache && f.local && f.data == "" {
		m.Add("--cache with --local needs --data, a folder that keeps the results of one map for the next")
	}
	if f.detach && f.local {
		m.Add("--detach does not go with --local, whose server ends with the command; start `gpumux dev` for maps in the background")
	}
	if f.detach && changed("out") {
		m.Add("--out does not go with --detach; fetch the results later with `gpumux results`")
	}
	f.checkFiles(&m)
	if f.unordered && f.out != "-" {
		m.Add("--unordered goes with --out -; a file of results is in order")
	}
	if f.noWait && f.local {
		m.Add("--no-wait does not go with --local, which brings its own worker")
	}
	if slices.ContainsFunc(f.in, func(in string) bool { return sameFile(in, f.out) }) {
		m.Add("--out %s is the input itself; name another file", f.out)
	}
	return task, command, m.Err()
}

// checkFiles finds what is wrong with the folder for what items keep, and makes it.
func (f *mapFlags) checkFiles(m *app.Mistakes) {
	switch {
	case f.files == "":
	case f.detach:
		m.Add("--files does not go with --detach; fetch the files later with `gpumux results ID --files DIR`")
	case f.valueOnly():
		m.Add("--files goes with results; with --quiet and --reduce give --out too")
	case len(*m) == 0:
		if err := files.CheckFolder(f.files); err != nil {
			m.Add("%v", err)
		}
	}
}

// checkInput finds every mistake in how the map is to run.
func (f *mapFlags) checkInput(m *app.Mistakes, changed func(string) bool) {
	in := f.input()
	if changed("reduce") && strings.TrimSpace(f.reduce) == "" {
		m.Add("--reduce is empty; give one of %s, or a task", strings.Join(contract.Reduces(), ", "))
		in.Reduce = ""
	}
	inputMistakes(m, in)
	if f.backoff > 0 && f.attempts == 1 {
		m.Add("--backoff goes with --attempts 2 or more: without it no item is tried again")
	}
	// In a field 0 stands for the default, which a flag says by being left away.
	if f.attempts == 0 {
		m.Add("--attempts 0 is outside 1 to %d", gpumux.MaxAttempts)
	}
	if changed("priority") && f.priority == 0 {
		m.Add("--priority 0 is outside 1 (first) to 5 (last)")
	}
	f.taskFlags.check(m, changed)
}

// cutCommand takes the command after --, which stands for TASK, from the arguments. One of the two there must be.
func cutCommand(m *app.Mistakes, c *cobra.Command, args []string, isLocal bool) (before, command []string, given bool) {
	dash := c.ArgsLenAtDash()
	switch {
	case dash < 0 && len(args) == 0:
		m.Add("TASK is missing; give its name, such as embed, or with --local file.py:function")
	case dash < 0:
	case !isLocal:
		m.Add("a command after -- goes with --local; elsewhere the worker's file names it as a task")
	case dash == len(args):
		m.Add("no command after --")
	}
	if dash < 0 {
		return args, nil, false
	}
	return args[:dash], args[dash:], true
}

// readTask reads TASK or the command after --.
func readTask(m *app.Mistakes, c *cobra.Command, args []string, isLocal bool) (task string, command []string) {
	args, command, given := cutCommand(m, c, args, isLocal)
	switch {
	case given:
		if len(args) > 0 && isLocal && len(command) > 0 {
			m.Add("give either TASK or a command after --, not both: %s", args[0])
		}
		return "", command
	case len(args) == 0:
		return "", nil
	case len(args) > 1:
		m.Add("more than one TASK: %s; quote arguments with spaces, and name files with --in", strings.Join(args, " "))
	case strings.TrimSpace(args[0]) == "":
		m.Add("TASK is empty")
	}
	return args[0], nil
}

// sameFile reports whether two names are of one file, which a device such as /dev/null may well be.
func sameFile(a, b string) bool {
	if a == "" || b == "" || a == "-" || b == "-" {
		return false
	}
	one, err1 := os.Stat(a)
	two, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && one.Mode().IsRegular() && os.SameFile(one, two)
}
