package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/local"
)

// outcome is what a caller of the program sees.
type outcome struct {
	code           exitCode
	stdout, stderr string
}

// broken is an embedded server that cannot start.
func broken(context.Context, local.ServerOptions) (local.Server, error) {
	return nil, errors.New("port 7233 is taken; give --port")
}

// run is one call of the program in an empty folder-free environment: no Temporal is
// where it looks for one.
func run(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	return runWith(t, Options{Local: broken, Stdin: strings.NewReader(stdin)}, args...)
}

func runWith(t *testing.T, o Options, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	o.Args, o.Stdout, o.Stderr, o.Version = args, &stdout, &stderr, "1.2.3"
	o.Signals = make(chan os.Signal)
	code := exitCode(Main(o))
	return outcome{code, stdout.String(), stderr.String()}
}

// lonely makes every Temporal address a closed port and every file relative to a new
// folder.
func lonely(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("TEMPORAL_ADDRESS", address)
	t.Setenv("TEMPORAL_CONFIG_FILE", os.DevNull)
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	t.Setenv("GPUMUX_STORE", "")
	return address
}

func write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func TestMain_MistakesAreFoundBeforeAnythingStarts(t *testing.T) {
	lonely(t)
	write(t, "items.jsonl", "1\n2\n")
	write(t, "task.py", "def f(x): return x\n")
	write(t, "broken.jsonl", "{\"a\":1}\n\n{oops}\n")
	write(t, "ragged.csv", "a,b\n1,2\n3\n")
	write(t, "ragged.jsonl", "{\"a\":1,\"b\":2}\n3\n")
	write(t, "embed.py", "def embed(item):\n    return item\n")
	require.NoError(t, os.Mkdir("folder", 0o755))
	require.NoError(t, os.Symlink("loop", "loop"))
	for _, c := range []struct {
		name string
		args []string
		says []string
	}{
		{"UnknownCommand", []string{"mpa"}, []string{"Did you mean this?", "map"}},
		{"UnknownFlag", []string{"map", "embed", "--inn", "x"}, []string{"unknown flag: --inn", "see `gpumux map --help`"}},
		{"BadNumber", []string{"map", "embed", "--in", "items.jsonl", "--option", "chunk=many"}, []string{"--option", "many is no value of chunk"}},
		{"NoTask", []string{"map", "--in", "items.jsonl"}, []string{"TASK is missing"}},
		{"SkipByNothing", []string{"map", "task.py:f", "--in", "items.jsonl", "--skip", "x.jsonl"}, []string{"--skip goes with --key, or --with-item"}},
		{"SkipNumbers", []string{"map", "task.py:f", "--range", "0:2", "--skip", "x.jsonl"}, []string{"--skip does not go with --range"}},
		{"SkipStream", []string{"map", "task.py:f", "--in", "items.jsonl", "--with-item", "--skip", "-"}, []string{"--skip takes files"}},
		{"SkipNothing", []string{"map", "task.py:f", "--in", "items.jsonl", "--with-item", "--skip", ""}, []string{"--skip is empty"}},
		{"SkipOut", []string{"map", "task.py:f", "--in", "items.jsonl", "--with-item", "--skip", "broken.jsonl", "--out", "broken.jsonl"},
			[]string{"--out broken.jsonl is the file of --skip, whose results it would replace"}},
		{"OptionEdition", []string{"map", "task.py:f", "--range", "0:2", "--option", "edition=c0c766"}, []string{"--option", "edition is any"}},
		{"FileAsTask", []string{"map", "task.py:f", "items.jsonl", "--local"}, []string{"items.jsonl is a file and no TASK", "--in", "--glob in quotes"}},
		{"GlobFolder", []string{"map", "task.py:f", "--glob", "folder/", "--local"}, []string{"--glob folder/ is a folder; give 'folder/*'"}},
		{"StreamNothing", []string{"stream"}, []string{"TASK is missing; give file.py:function\n"}},
		{"EmptyTask", []string{"map", "a", "", "--in", "items.jsonl"}, []string{"TASK is empty"}},
		{"StagesOfStream", []string{"stream", "task.py:f", "embed.py:embed"}, []string{"more than one TASK: task.py:f embed.py:embed", "`gpumux map` takes several"}},
		{"StagesBesideCommand", []string{"map", "task.py:f", "--range", "0:2", "--local", "--", "cat"}, []string{"either TASK or a command"}},
		{"StageBadPool", []string{"map", "a", "b@GPU", "--range", "0:2"}, []string{"TASK b: ladder[0]", `"GPU"`}},
		{"StagesBadTimeout", []string{"map", "a", "b", "--range", "0:2", "--timeout", "-1s"}, []string{"--timeout -1s"}},
		{"StagePoolMissing", []string{"map", "task.py:f@cpu", "embed.py:embed", "--range", "0:2", "--local"}, []string{"TASK embed.py:embed has no pool, and others have", "embed.py:embed@cpu"}},
		{"StageFileMissing", []string{"map", "task.py:f", "none.py:g", "--range", "0:2", "--local"}, []string{"TASK none.py:g: there is no file none.py"}},
		{"SlotsOfMorePools", []string{"map", "task.py:f", "embed.py:embed", "--range", "0:2", "--local", "--slots", "a=1,b=2,c=3"}, []string{"--slots names 3 pools for 2 stages"}},
		{"SlotsOfNoStage", []string{"map", "task.py:f@cpu", "embed.py:embed@cpu-b", "--range", "0:2", "--local", "--slots", "cpu=1,disk=2"}, []string{"--slots: nothing runs in pool disk"}},
		{"SlotsOfNoPool", []string{"map", "task.py:f", "--range", "0:2", "--local", "--pool", "cpu", "--slots", "gpu=1"}, []string{"--slots: nothing runs in pool gpu"}},
		{"SlotsTwice", []string{"map", "task.py:f", "--range", "0:2", "--local", "--slots", "cpu=1,cpu=auto"}, []string{"--slots", "pool cpu is named twice"}},
		{"SlotsHalfNamed", []string{"map", "task.py:f", "--range", "0:2", "--local", "--slots", "cpu=1,2"}, []string{"--slots", "write cpu=6,gpu=2"}},
		{"SlotsOfAStream", []string{"stream", "task.py:f", "--slots", "cpu=1,cpu-2=2"}, []string{"--slots names several pools; a stream has the slots of one"}},
		{"KeepNoStage", []string{"map", "task.py:f", "embed.py:embed", "--range", "0:2", "--keep", "g"}, []string{"--keep g is none of the stages task.py:f > embed.py:embed"}},
		{"KeepLastStage", []string{"map", "task.py:f", "embed.py:embed", "--range", "0:2", "--keep", "embed"}, []string{"--keep embed", "are the results"}},
		{"StageBeside", []string{"map", "task.py:f", "--range", "0:2", "--stage", `{"task":"g"}`}, []string{"either TASKs or --stage"}},
		{"StageBadJSON", []string{"map", "--range", "0:2", "--stage", `{"task":"g","attempts":"x"}`}, []string{"--stage", "attempts is a string"}},
		{"StageBadOption", []string{"map", "--range", "0:2", "--stage", `{"task":"g","attempts":1000}`, "--stage", `{"task":"h"}`}, []string{"TASK g: attempts 1000 is outside"}},
		{"NoItems", []string{"map", "embed"}, []string{"--in FILE, --range START:END and --glob PATTERN"}},
		{"TwoInputs", []string{"map", "embed", "--in", "items.jsonl", "--range", "0:2"}, []string{"give only one of --in, --range and --glob"}},
		{"WrongFormat", []string{"map", "embed", "--in", "items.json"}, []string{"--in items.json", "jq -c '.[]'"}},
		{"BadJSON", []string{"map", "embed", "--in", "broken.jsonl"}, []string{"broken.jsonl:3"}},
		{"BadRange", []string{"map", "embed", "--range", "7"}, []string{`--range "7"`, "START:END"}},
		{"EmptyGlob", []string{"map", "embed", "--glob", "*.png"}, []string{"--glob *.png fits no file"}},
		{"BadPool", []string{"map", "embed", "--in", "items.jsonl", "--pool", "GPU"}, []string{"--pool", `"GPU"`}},
		{"FreshWithoutLocal", []string{"map", "embed", "--in", "items.jsonl", "--fresh", "spawn"}, []string{"--fresh goes with --local"}},
		{"AddressWithLocal", []string{"map", "embed.py:embed", "--in", "items.jsonl", "--local", "--address", "x:1"}, []string{"--address does not go with --local"}},
		{"DetachWithLocal", []string{"map", "embed.py:embed", "--in", "items.jsonl", "--local", "--detach"}, []string{"--detach does not go with --local"}},
		{"MemoryWithoutUnit", []string{"map", "embed.py:embed", "--in", "items.jsonl", "--local", "--memory", "5"}, []string{"5 is 5B", `"--memory"`, "8GiB"}},
		{"OutputOfFunction", []string{"map", "embed.py:embed", "--in", "items.jsonl", "--local", "--output", "text"}, []string{"--output is for a command"}},
		{"LocalTaskFunction", []string{"map", "embed.py:embd", "--in", "items.jsonl", "--local"}, []string{"no function embd", "embed"}},
		{"CommandWithoutLocal", []string{"map", "--in", "items.jsonl", "--", "cat"}, []string{"a command after -- goes with --local"}},
		{"CommandAndTask", []string{"map", "embed.py:embed", "--in", "items.jsonl", "--local", "--", "cat"}, []string{"either TASK or a command"}},
		{"RetryOnOfCommand", []string{"map", "--in", "items.jsonl", "--local", "--attempts", "2", "--retry-on", "75,256", "--", "cat"},
			[]string{"--retry-on takes exit statuses of a command, 1 to 255"}},
		{"ShellLine", []string{"map", "--in", "items.jsonl", "--local", "--", "ls | wc"}, []string{`"ls | wc" is not on PATH`, "or a line of a shell as sh -c 'ls | wc'"}},
		{"FolderAsProgram", []string{"map", "--in", "items.jsonl", "--local", "--", "./folder"}, []string{"folder is a folder; name the program in it"}},
		{"UnknownProgram", []string{"map", "--in", "items.jsonl", "--local", "--", "no-such-program"}, []string{`"no-such-program" is not on PATH`}},
		{"OutIsTask", []string{"map", "task.py:f", "--range", "0:2", "--local", "--out", "./task.py"}, []string{"--out ./task.py is the task's own file"}},
		{"OutIsInput", []string{"map", "embed", "--in", "items.jsonl", "--out", "./items.jsonl"}, []string{"--out ./items.jsonl is the input itself"}},
		{"LinesOfRange", []string{"map", "embed", "--range", "0:2", "--lines"}, []string{"--lines goes with --in"}},
		{"ArrowFile", []string{"map", "embed", "--in", "s3://b/x.arrow", "--columns", "a"}, []string{`--columns go with Parquet files, and "s3://b/x.arrow" is none`}},
		{"ColumnTwice", []string{"map", "embed", "--in", "s3://b/x.parquet", "--columns", "a,b,a"}, []string{`--columns have "a" twice`}},
		{"IDNotASCII", []string{"map", "embed", "--range", "0:2", "--id", "über"}, []string{"--id", "über", "ASCII"}},
		{"KeyOfNoField", []string{"map", "embed", "--in", "ragged.jsonl", "--key", "id"}, []string{`--key: the first item has no field "id"; it has a, b`}},
		{"EmptyKey", []string{"map", "embed", "--in", "items.jsonl", "--key", ""}, []string{"--key is empty"}},
		{"OutIsFolder", []string{"map", "embed", "--in", "items.jsonl", "--out", "folder"}, []string{"--out folder cannot be written: it is a folder; name a file"}},
		{"OutAndJSON", []string{"map", "embed", "--in", "items.jsonl", "--out", "-", "--json"}, []string{"--out -"}},
		{"ShowNoID", []string{"show"}, []string{"give the ID of one map"}},
		{"LsLimit", []string{"ls", "--limit", "0"}, []string{"--limit 0"}},
		{"ShowEmptyID", []string{"show", ""}, []string{"the ID is empty", "gpumux ls"}},
		{"UnknownOption", []string{"map", "embed", "--in", "items.jsonl", "--option", "task=other"}, []string{"write KEY=VALUE, with a KEY of chunk, window, priority"}},
		{"OutLoops", []string{"map", "embed", "--in", "items.jsonl", "--out", "loop"}, []string{"--out loop cannot be written", "symbolic links"}},
		{"WorkerMissingFile", []string{"worker", "-f", "none.yaml"}, []string{"none.yaml", "-f"}},
		{"DevTasks", []string{"dev", "--tasks", "nowhere"}, []string{"--tasks nowhere is not a folder"}},
		{"SlotsNoNumber", []string{"map", "embed.py:embed", "--range", "0:4", "--local", "--slots", "some"}, []string{"--slots", "give 1 to 256, auto or cores"}},
		{"PruneTooYoung", []string{"prune", "--older-than", "5m"}, []string{"at least 1h"}},
		{"ModelOfNothing", []string{"llm"}, []string{"no FILE; give requests, or rows with --prompt", "--model is missing; give the name of a model"}},
		{"ModelMissing", []string{"llm", "items.jsonl", "--model", " "}, []string{"--model is missing", "see `gpumux llm --help`"}},
		{"ModelOfAGlob", []string{"llm", "--model", "m", "--glob", "*"}, []string{"--glob does not go with llm; `gpumux map gpumux.llm:Model` takes it"}},
		{"ModelIn", []string{"llm", "--model", "m", "--in", "items.jsonl"}, []string{"--in does not go with llm", "no FILE"}},
		{"ModelFresh", []string{"llm", "items.jsonl", "--model", "m", "--mode", "fresh"}, []string{"--mode does not go with llm"}},
		{"ModelSetting", []string{"llm", "items.jsonl", "--model", "m", "--setting", "x"}, []string{`"x" for "--setting"`, "write KEY=VALUE, such as"}},
		{"ModelRequest", []string{"llm", "items.jsonl", "--model", "m", "--request", "=x"}, []string{`"=x" for "--request"`, "write KEY=VALUE"}},
		{"ModelFileMissing", []string{"llm", "none.jsonl", "--model", "m"}, []string{"none.jsonl: no such file", "give JSON lines, .csv or .parquet"}},
		{"ModelFileBroken", []string{"llm", "broken.jsonl", "--model", "m", "--local"}, []string{"broken.jsonl:3"}},
		{"ModelOfRows", []string{"llm", "ragged.jsonl", "--model", "m"}, []string{`no field "custom_id"; it has a, b; a request of a batch has it`, "--prompt"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, "", c.args...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.Empty(t, got.stdout)
			for _, text := range c.says {
				require.Contains(t, got.stderr, text)
			}
		})
	}
	_, err := os.Stat("state")
	require.ErrorIs(t, err, os.ErrNotExist, "a mistake left state behind")
}

func TestMain_EveryMistakeIsNamedAtOnce(t *testing.T) {
	lonely(t)
	got := run(t, "", "map", "--mode", "warm", "--attempts", "0", "--pool", "A")
	require.Equal(t, exitUsage, got.code)
	golden(t, "mistakes", got.stderr)
}

func TestMain_NoTemporal(t *testing.T) {
	address := lonely(t)
	write(t, "items.jsonl", "1\n")
	for _, args := range [][]string{
		{"map", "embed", "--in", "items.jsonl"}, {"ls"}, {"show", "x"}, {"wait", "x"},
		{"prune", "--older-than", "1d"},
		{"results", "x"}, {"pause", "x"}, {"resume", "x"}, {"cancel", "x"}, {"retry", "x"},
	} {
		got := run(t, "", args...)
		require.Equal(t, exitUnavailable, got.code, "%v: %s", args, got.stderr)
		require.Contains(t, got.stderr, address)
		require.Contains(t, got.stderr, "gpumux dev")
		require.Empty(t, got.stdout)
		looked := args[0] == "show" || args[0] == "results"
		require.Equal(t, looked, strings.Contains(got.stderr, "no map of this machine has the ID x (`gpumux local` lists them)"))
	}
	require.NotContains(t, run(t, "", "show", "x", "--address", address).stderr, "this machine")
}

func TestMain_LeanBinaryHasNoServer(t *testing.T) {
	lonely(t)
	write(t, "embed.py", "def embed(item):\n    return item\n")
	for _, args := range [][]string{{"dev"}, {"map", "embed.py:embed", "--range", "0:1", "--local"}} {
		got := runWith(t, Options{}, args...)
		require.Equal(t, exitUsage, got.code, got.stderr)
		require.Contains(t, got.stderr, "without the embedded server")
	}
}

func TestMain_ServerThatCannotStart(t *testing.T) {
	lonely(t)
	write(t, "embed.py", "def embed(item):\n    return item\n")
	got := run(t, "", "map", "embed.py:embed", "--range", "0:1", "--local")
	require.Equal(t, exitUnavailable, got.code, got.stderr)
	require.Contains(t, got.stderr, "port 7233 is taken")
}

// A command that blocks where no context reaches ends with the second signal.
func TestMain_SecondSignalEndsABlockedCommand(t *testing.T) {
	reader, writer := io.Pipe() // nobody reads
	defer reader.Close()
	signals := make(chan os.Signal, 2)
	signals <- os.Interrupt
	signals <- os.Interrupt
	code := make(chan exitCode)
	go func() {
		code <- exitCode(Main(Options{Args: []string{"--version"}, Stdout: writer, Stderr: io.Discard, Signals: signals}))
	}()
	select {
	case got := <-code:
		require.Equal(t, exitInterrupted, got)
	case <-time.After(time.Minute):
		t.Fatal("the command does not end")
	}
}

func TestMain_Version(t *testing.T) {
	got := runWith(t, Options{}, "--version")
	require.Equal(t, exitOK, got.code)
	require.Contains(t, got.stdout, "gpumux 1.2.3 (client and worker, go")
}

func TestMain_HelpIsData(t *testing.T) {
	got := run(t, "", "--help")
	require.Equal(t, exitOK, got.code)
	golden(t, "help", got.stdout)
	require.Empty(t, got.stderr)
}
