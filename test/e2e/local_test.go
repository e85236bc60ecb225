package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

func TestLocal_MapLeavesResultsAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("items.csv", "a,b\n1,x\n2,y\n")
	s.write("show.py", "def show(row):\n    print('row', row['b'])\n    return row\n")
	p := s.run(0, "map", "show.py:show", "--in", "items.csv", "--local")
	results := s.lines(p.stdout.String())
	require.Len(t, results, 2)
	require.JSONEq(t, `{"a":1,"b":"x"}`, string(results[0]["value"]))
	require.JSONEq(t, `"row y\n"`, string(results[1]["output"]))
	require.Contains(t, p.stderr.String(), "2 items in")
	require.Empty(t, s.state(), "a finished map leaves no state")

	s.run(0, "map", "step.py:double", "--range", "0:0", "--local", "--out", "none.jsonl")
	require.Empty(t, s.file("none.jsonl"))

	p = s.run(0, "map", "--range", "0:3", "--local", "--json", "--out", "c.jsonl", "--", "cat")
	var summary struct{ Items, Succeeded int }
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &summary))
	require.Equal(t, 3, summary.Succeeded)
	require.Len(t, s.lines(s.file("c.jsonl")), 3)

	p = s.run(2, "map", "step.py:dubble", "--range", "0:3", "--local")
	require.Contains(t, p.stderr.String(), "double")
	require.Empty(t, s.state(), "a map that could not work leaves no state")
}

// What all items share is read once per process. Maps with other arguments are other
// maps, and do not share processes.
func TestLocal_Arg(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("scale.py", `
import gpumux
class Scale:
    def __init__(self):
        self.by = gpumux.arg()["by"]
    def __call__(self, x):
        return x * self.by
`)
	s.write("two.json", "{\n  \"by\": 2\n}\n")
	values := func(p *program) (all []string) {
		for _, line := range s.lines(p.stdout.String()) {
			all = append(all, string(line["value"]))
		}
		return all
	}
	require.Equal(t, []string{"2", "4"}, values(s.run(0, "map", "scale.py:Scale", "--range", "1:3", "--local", "--arg", "two.json")))
	require.Equal(t, []string{"3", "6"}, values(s.run(0, "map", "scale.py:Scale", "--range", "1:3", "--local", "--arg", `{"by": 3}`, "--mode", "fresh")))
	s.write("one.jsonl", "1\n")
	p := s.run(0, "stream", "--in", "one.jsonl", "--arg", "two.json", "--output", "text", "--", "sh", "-c", "echo $GPUMUX_ARG")
	require.Equal(t, []string{`"{\"by\":2}"`}, values(p))

	s.write("large.json", `{"by": 7, "text": "`+strings.Repeat("x", 1<<20)+`"}`)
	require.Equal(t, []string{"7", "14"}, values(s.run(0, "map", "scale.py:Scale", "--range", "1:3", "--local", "--arg", "large.json")))
	for _, how := range [][]string{{"map", "--local"}, {"stream"}} {
		p = s.run(0, append(how, "--in", "one.jsonl", "--arg", "large.json", "--out", "-", "--", "sh", "-c", `test -z "$GPUMUX_ARG" && wc -c < "$GPUMUX_ARG_FILE"`)...)
		require.Equal(t, []string{"1048594"}, values(p))
	}

	s.write("larger.json", `"`+strings.Repeat("x", 16<<20)+`"`)
	for _, bad := range []string{"nowhere.json", "scale.py", "larger.json"} {
		p := s.run(2, "map", "scale.py:Scale", "--range", "1:3", "--local", "--arg", bad)
		require.Contains(t, p.stderr.String(), "--arg")
	}
	require.Empty(t, s.state())
}

// A command is called as its words say.
func TestLocal_Commands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("names.txt", "a b\n\n$(exit 3)\n")
	p := s.run(0, "map", "--in", "names.txt", "--lines", "--local", "--output", "text", "--", "printf", "<%s>\n", "{}")
	results := s.lines(p.stdout.String())
	for i, want := range []string{`"<a b>"`, `"<>"`, `"<$(exit 3)>"`} {
		require.Equal(t, want, string(results[i]["value"]))
	}
}

// A map with results is over for its command when they are delivered: until then the
// command delivers and runs nothing.
func TestLocal_ResultsAreDeliveredWhateverEndsTheCommand(t *testing.T) {
	t.Parallel()
	const big = "import os\nfrom step import mark\ndef big(item):\n    mark(item)\n    if item == 7: raise ValueError('seven')\n    return 'x' * 1000\n"
	for name, c := range map[string]struct {
		signal syscall.Signal
		code   int
		says   string
	}{
		"DiskFull":  {0, 4, "no space left"},
		"Interrupt": {syscall.SIGINT, 130, "not all its results were written; the same command writes them"},
		"Kill":      {syscall.SIGKILL, -1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			s.write("big.py", big)
			args := []string{"map", "big.py:big", "--range", "0:300", "--local"}
			if c.signal == 0 {
				p := s.run(c.code, append(args, "--out", "/dev/full")...)
				require.Contains(t, p.stderr.String(), c.says)
				require.Contains(t, p.stderr.String(), "the same command writes them")
			} else {
				require.NoError(t, syscall.Mkfifo(s.path("pipe"), 0o600))
				p := s.begin(append(args, "--out", "pipe")...)
				reader, err := os.Open(s.path("pipe")) // returns when the results are about to come, which are more than a pipe holds
				require.NoError(t, err)
				defer reader.Close()
				_, err = reader.Read(make([]byte, 1))
				require.NoError(t, err)
				require.NoError(t, p.Process.Signal(c.signal))
				require.Equal(t, c.code, p.code(), &p.stderr)
				require.Contains(t, p.stderr.String(), c.says)
			}
			require.Len(t, s.state(), 1)
			finished := s.calls()
			p := s.run(1, append(args, "--out", "r.jsonl")...)
			require.Contains(t, p.stderr.String(), "is finished; these are its results")
			require.Len(t, s.lines(s.file("r.jsonl")), 300)
			require.Equal(t, finished, s.calls(), "items ran again")

			if name == "Kill" {
				s.run(1, append(args, "--out", "r.jsonl")...) // delivered and given again: anew
				require.Equal(t, 2, s.calls()["0"])
			}
		})
	}
}

// A reader that wants only the beginning kills the command by SIGPIPE.
func TestLocal_ReaderGoesAway(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	path := programtest.Binary(t)
	command := exec.Command("sh", "-c", path+" map step.py:double --range 0:20000 --local --quiet | head -1")
	command.Dir, command.Env = s.dir, s.env
	out, err := command.Output()
	require.NoError(t, err)
	require.Len(t, s.lines(string(out)), 1)
	p := s.run(0, "map", "step.py:double", "--range", "0:20000", "--local")
	require.Len(t, s.lines(p.stdout.String()), 20000)
	for item, n := range s.calls() {
		require.Equal(t, 1, n, "item %s", item)
	}
	require.Empty(t, s.state())
}

func TestLocal_IDShowsWhatItCameTo(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	args := []string{"map", "step.py:double", "--range", "0:3", "--local", "--id", "mine", "--pool", "gpu"}
	p := s.run(0, append(args, "--out", "1.jsonl")...)
	require.Contains(t, p.stderr.String(), s.state()[0], "says where its state stays")
	p = s.run(0, append(args, "--out", "2.jsonl", "--attempts", "3")...)
	require.Contains(t, p.stderr.String(), "map mine: 3 items")
	require.Contains(t, p.stderr.String(), "map mine is finished; these are its results")
	p = s.run(0, append(args, "--out", "3.jsonl", "--retry")...)
	require.Contains(t, p.stderr.String(), "every item succeeded")
	for _, name := range []string{"1.jsonl", "2.jsonl", "3.jsonl"} {
		require.Len(t, s.lines(s.file(name)), 3)
	}
	require.Equal(t, map[string]int{"0": 1, "1": 1, "2": 1}, s.calls())
	require.Regexp(t, `(?s)map +mine\n.*succeeded +3\n`, s.run(0, "show", "mine").stdout.String())
	require.Equal(t, s.file("3.jsonl"), s.run(0, "results", "mine").stdout.String())
	require.Contains(t, s.run(2, "map", "step.py:double", "--range", "0:4", "--local", "--id", "mine").stderr.String(), "is taken")
	if gpus, _ := filepath.Glob("/dev/nvidia[0-9]*"); len(gpus) == 0 {
		require.Contains(t, p.stderr.String(), "pool gpu runs on the CPU")
	}
}

// The hint says to change options, and so the map to retry is found under any, with the
// file that was mended meanwhile.
func TestLocal_FailedItemsAreRetried(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	args := []string{"map", "step.py:odd", "--range", "0:20", "--local", "--out", "r.jsonl"}
	p := s.run(2, append(args, "--retry")...)
	require.Contains(t, p.stderr.String(), "there is no map of task step.py:odd over these items to retry")
	require.Empty(t, s.calls())
	p = s.run(1, args...)
	require.Contains(t, p.stderr.String(), "10 task_error")
	require.Contains(t, p.stderr.String(), "10 like item 1 = 1: task_error")
	require.Len(t, s.state(), 1, "failed items keep the state")
	s.write("fixed", "")
	s.write("step.py", stepPy+"    # mended\n")
	s.run(0, append(args, "--retry", "--timeout", "10m", "--attempts", "2", "--mode", "fresh", "--slots", "2", "--memory", "2GiB")...)
	require.Len(t, s.lines(s.file("r.jsonl")), 20)
	require.NotContains(t, s.file("r.jsonl"), "fault")
	for item, n := range s.calls() {
		require.Equal(t, 1, n, "item %s", item)
	}
	require.Empty(t, s.state())
	s.run(2, append(args, "--retry")...) // all of them succeeded
	require.Len(t, s.calls(), 20)
}

// A task whose file has changed is a new map, unless the old one is asked for.
func TestLocal_AChangedTaskIsANewMap(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	const task = `
import os, time

def gate(item):
    while item > 2 and not os.path.exists("open"): time.sleep(0.01)
    return VERSION
`
	stopped := func(version string) string {
		t.Helper()
		before := len(s.state())
		s.write("gate.py", "VERSION = "+version+task)
		p := s.begin("map", "gate.py:gate", "--range", "0:6", "--local", "--option", "chunk=1", "--option", "window=1", "--slots", "1", "--out", "r.jsonl")
		stored := func() int {
			return storedItems(t, s.path("state/gpumux/local/*/store"))
		}
		rig.Wait(t, func() bool { return stored() == 3*(before+1) }, time.Minute, 20*time.Millisecond, "three items are stored")
		other := s.run(2, "map", "gate.py:gate", "--range", "0:2", "--local", "--out", "r.jsonl")
		require.Contains(t, other.stderr.String(), "runs and will write "+s.path("r.jsonl")+"; wait for it, or give another file with --out")
		require.NoError(t, p.Process.Signal(syscall.SIGINT))
		require.Equal(t, 130, p.code(), p.stderr.String())
		return p.stderr.String()
	}
	finished := func(want []string, extra ...string) string {
		t.Helper()
		p := s.run(0, append([]string{"map", "gate.py:gate", "--range", "0:6", "--local", "--out", "r.jsonl"}, extra...)...)
		var got []string
		for _, line := range s.lines(s.file("r.jsonl")) {
			got = append(got, string(line["value"]))
		}
		require.Equal(t, want, got)
		return p.stderr.String()
	}
	require.NotContains(t, stopped("1"), "have changed")
	first := filepath.Base(s.state()[0])
	// Python takes a file of the same second and size for the same.
	second := stopped("2 # another size")
	require.Contains(t, second, "map "+first+" was stopped before it wrote "+s.path("r.jsonl")+", and this is another map")
	require.Contains(t, second, "note: the files of task gate.py:gate have changed since map "+first+" was stopped, so this is a new map")
	s.write("open", "")
	require.Contains(t, finished([]string{"2", "2", "2", "2", "2", "2"}), "going on with map", "the file is that of the second map")
	later := s.run(0, "map", "gate.py:gate", "--range", "0:2", "--local", "--out", "r.jsonl")
	require.NotContains(t, later.stderr.String(), "was stopped before it wrote", "another map has written the file since")
	// The first map goes on with the code that it began with alone, by whatever name it is
	// called.
	other := s.run(2, "map", "gate.py:gate", "--range", "0:6", "--local", "--out", "r.jsonl", "--id", first)
	require.Contains(t, other.stderr.String(), "began with edition "+first[len(first)-6:])
	s.write("gate.py", "VERSION = 1"+task)
	require.Contains(t, finished([]string{"1", "1", "1", "1", "1", "1"}), "going on with map "+first)
}

// Whatever ends a local map in the middle, the same command finishes it without running a
// finished item again.
func TestLocal_GoesOnAfterItWasStopped(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"Interrupt": syscall.SIGINT, "Hangup": syscall.SIGHUP, "Kill": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			args := []string{"map", "step.py:gate", "--range", "0:12", "--local", "--slots", "8", "--option", "chunk=1", "--option", "window=6", "--out", "r.jsonl"}
			p := s.begin(args...)
			stored := func() int {
				return storedItems(t, s.path("state/gpumux/local/*/store"))
			}
			rig.Wait(t, func() bool { return stored() == 5 }, time.Minute, 20*time.Millisecond, "five items are stored")
			unfinished := s.path(".gpumux-" + filepath.Base(s.state()[0]))
			written := func() bool { text, _ := os.ReadFile(unfinished); return bytes.Count(text, []byte("\n")) == 5 }
			rig.Wait(t, written, time.Minute, 20*time.Millisecond, "five results are written")

			rival := s.run(3, args...) // the same map at the same time
			require.Contains(t, rival.stderr.String(), "this map runs already in process "+strconv.Itoa(p.Process.Pid))
			require.Regexp(t, `running .* gpumux map step.py:gate --range 0:12 --local`, s.run(0, "local").stdout.String())

			require.NoError(t, p.Process.Signal(signal))
			if signal != syscall.SIGKILL {
				require.Equal(t, 130, p.code(), p.stderr.String())
				require.Contains(t, p.stderr.String(), "the same command goes on")
			} else {
				require.Equal(t, -1, p.code())
			}
			rig.Wait(t, func() bool { return len(children(t, s.dir)) == 0 }, time.Minute, 20*time.Millisecond,
				"task processes outlived gpumux")
			require.Contains(t, s.run(0, "local").stdout.String(), "interrupted")
			partial := s.run(1, "results", filepath.Base(s.state()[0]), "--partial", "--values")
			require.ElementsMatch(t, []string{"0", "1", "2", "3", "4"}, strings.Fields(partial.stdout.String()))
			require.Contains(t, partial.stderr.String(), ", interrupted: it has 5 results so far")
			require.NoFileExists(t, s.path("r.jsonl"))
			if signal != syscall.SIGKILL {
				require.NoFileExists(t, unfinished)
				require.NoError(t, os.Mkdir(unfinished, 0o700)) // what cannot be written while the map runs is written then
			}
			s.write("open", "")
			again := s.run(0, args...)
			require.Contains(t, again.stderr.String(), "going on with map")
			require.Len(t, s.lines(s.file("r.jsonl")), 12)
			require.NoFileExists(t, unfinished)
			require.Contains(t, s.run(0, "local").stderr.String(), "no local map has anything left")
			count := s.calls()
			for i := range 5 {
				require.Equal(t, 1, count[strconv.Itoa(i)], "item %d ran again", i)
			}
		})
	}
}

// A map whose state finds no room says which disk is full, waits, and goes on when there
// is room.
func TestLocal_WaitsForRoomOnItsDisk(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	disk := s.path("disk")
	require.NoError(t, os.Mkdir(disk, 0o755))
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=3m"); err != nil {
		rig.Because(t, rig.Mount, "a small disk: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	s.write("big.py", "def big(x): return 'x' * 30000\n")
	s.env = append(s.env, "XDG_STATE_HOME="+disk)
	p := s.begin("map", "big.py:big", "--range", "0:300", "--local", "--id", "big", "--out", "r.jsonl")
	require.Eventually(t, func() bool {
		return strings.Contains(p.stderr.String(), "the disk of "+disk+"/gpumux/local/big is full")
	},
		time.Minute, 20*time.Millisecond, "it says what it waits for")
	require.NoError(t, unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=200m"))
	require.Equal(t, 0, p.code(), p.stderr.String())
	require.Len(t, s.lines(s.file("r.jsonl")), 300)
}
