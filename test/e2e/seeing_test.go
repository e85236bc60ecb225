package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers/config"
)

const talkPy = `
import gpumux, os, time
def talk(item):
    print(f"item {item} talks")
    if item % 4 == 1: raise ValueError(f"{item} is no good")
    gpumux.progress({"at": item})
    while item == 6 and not os.path.exists(os.environ["CALLS"] + ".open"): time.sleep(0.005)
    if item == 6: print("item 6 ends")
    return item
`

// While a map runs, its failures, what its items printed and what runs can be seen.
func TestSeeing_ARunningMap(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "talk.py"), []byte(talkPy), 0o644))
	c := s.config("cpu", 2)
	c.Tasks["talk"] = config.Task{Python: "talk.py:talk", Env: map[string]string{"CALLS": s.calls}}
	s.serve(c)
	here := newShell(t)
	here.at(s)
	id := strings.TrimSpace(here.run(0, "map", "talk", "--range", "0:8", "--pool", "cpu", "--option", "chunk=1", "--option", "window=2", "--detach").stdout.String())
	follower := here.begin("results", id, "--follow", "--unordered")
	var shown struct {
		Succeeded, Failed int64
		Causes            []struct {
			Count int64
		}
	}
	rig.Wait(t, func() bool {
		require.NoError(t, json.Unmarshal([]byte(here.run(0, "show", id, "--json").stdout.String()), &shown))
		return shown.Succeeded+shown.Failed == 7
	}, time.Minute, 50*time.Millisecond)
	require.EqualValues(t, 2, shown.Failed)
	text := here.run(0, "show", id).stdout.String()
	require.Regexp(t, `failed +2 \(2 task_error\)`, text)
	require.Regexp(t, `2 × task_error ValueError\n +where +cpu on CPU of \S+ \(2\)\n +example +item [15] = [15]\n +message +[15] is no good`, text)
	require.Contains(t, text, "raise ValueError")

	require.Contains(t, here.run(1, "results", id, "--partial").stdout.String(), `"output":"item 1 talks\n"`)
	require.Regexp(t, `running\n  item 6: cpu/[01] on CPU at \S+ for [0-9.ms]+, progress \{"at":6\}`, here.run(0, "show", id).stdout.String())

	require.NoError(t, os.WriteFile(s.calls+".open", nil, 0o644))
	require.Equal(t, 1, follower.code(), follower.stderr.String())
	require.Contains(t, follower.stdout.String(), `"output":"item 6 talks\nitem 6 ends\n"`)
	here.run(1, "wait", id)
	require.Equal(t, 8, strings.Count(here.run(1, "results", id).stdout.String(), ` talks\n`))
	require.NoError(t, json.Unmarshal([]byte(here.run(0, "show", id, "--json").stdout.String()), &shown))
	require.Len(t, shown.Causes, 1)
	require.EqualValues(t, 2, shown.Causes[0].Count)
	require.Regexp(t, `2 × task_error ValueError(?s:.*)to run the failed items again: gpumux retry `+id, here.run(0, "show", id).stdout.String())
}

// What a map with --local kept is read without any server.
func TestSeeing_AKeptLocalMap(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run(1, "map", "step.py:odd", "--range", "0:4", "--local", "--id", "keepme", "--out", "r.jsonl")
	written := s.file("r.jsonl")
	for _, flags := range [][]string{nil, {"--follow"}, {"--partial"}} {
		require.Equal(t, written, s.run(1, append([]string{"results", "keepme"}, flags...)...).stdout.String(), flags)
	}
	require.Equal(t, "0\nnull\n2\nnull\n", s.run(1, "results", "keepme", "--values").stdout.String())
	require.Regexp(t, `^map +keepme\nstatus +kept\nsucceeded +2\nfailed +2\nfolder +/.*\ncommand +gpumux map step.py:odd --range 0:4(?s:.*)ValueError: .* is odd`,
		s.run(0, "show", "keepme").stdout.String())
	require.Contains(t, s.run(0, "show", "keepme", "--json").stdout.String(), `"succeeded": 2`)
	require.Contains(t, s.run(3, "results", "keepme", "--address", "127.0.0.1:1").stderr.String(), "connect to Temporal")
}

// A map of which too many items fail ends, keeps what there is, and goes on when it is
// told to.
func TestSeeing_TooManyFailures(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	args := []string{"map", "step.py:odd", "--range", "0:40", "--local", "--slots", "2", "--option", "chunk=2", "--out", "r.jsonl", "--max-failures"}
	require.Contains(t, s.run(2, append(args, "lots")...).stderr.String(), "--max-failures")
	p := s.run(4, append(args, "10%")...)
	require.Regexp(t, `failed: task_error.*[0-9]+ of 40 items failed, more than the 4 that may \(10%\), mostly task_error; such as item [0-9]+`, p.stderr.String())
	id := filepath.Base(s.state()[0])
	require.Regexp(t, `interrupted(?s:.*)failed +[0-9]+\n(?s:.*)task_error ValueError(?s:.*)is odd`, s.run(0, "show", id).stdout.String())
	require.Contains(t, s.run(2, "results", id).stderr.String(), "map "+id+" is interrupted, and its own command writes its results; --partial gives")
	require.Contains(t, s.run(0, "show", id).stdout.String(), "status     interrupted\n")
	s.write("fixed", "")
	s.run(1, append(args, "10%")...) // what failed before does not count, and stays
	require.Len(t, s.lines(s.file("r.jsonl")), 40)
	require.GreaterOrEqual(t, strings.Count(s.failedLines("r.jsonl"), "\n"), 5)
}

const flakyPy = `
import os
def flaky(item):
    with open(f"tries{item}", "a+b") as f:
        f.write(b"x")
        if f.tell() < 3: raise ConnectionError(f"try {f.tell()}")
    return os.getpid()
`

func TestSeeing_ItemsThatRaiseAreTriedAfterAPause(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("flaky.py", flakyPy)
	require.Contains(t, s.run(2, "map", "flaky.py:flaky", "--range", "0:6", "--local", "--backoff", "1s").stderr.String(), "--backoff goes with --attempts")
	s.run(0, "map", "flaky.py:flaky", "--range", "0:6", "--local", "--slots", "2", "--attempts", "3", "--backoff", "100ms", "--out", "r.jsonl")
	require.Len(t, s.lines(s.file("r.jsonl")), 6)
	for i := range 6 {
		require.Equal(t, "xxx", s.file("tries"+string(rune('0'+i))))
	}
	require.Contains(t, s.run(2, "map", "flaky.py:flaky", "--range", "0:6", "--local", "--retry-on", "OSError").stderr.String(), "--retry-on goes with --attempts")
	for name, more := range map[string][]string{"same": nil, "fresh": {"--mode", "fresh"}, "pause": {"--backoff", "10ms"}} {
		s.write(name+".py", strings.ReplaceAll(flakyPy, "tries", name))
		s.run(1, append([]string{"map", name + ".py:flaky", "--range", "0:2", "--local", "--attempts", "3", "--out", "r.jsonl", "--retry-on",
			"requests.Timeout,LookupError"}, more...)...)
		require.Equal(t, "xx", s.file(name+"0")+s.file(name+"1"), "none is tried again: %s", name)
		require.Contains(t, s.file("r.jsonl"), `"final":true`)
	}
	s.run(1, "map", "--range", "0:2", "--local", "--attempts", "3", "--retry-on", "75,9", "--out", "r.jsonl", "--", "sh", "-c", "echo >>status; exit $((74+$1))", "sh", "{}")
	require.Equal(t, 4, strings.Count(s.file("status"), "\n"), "one of status 74 once, one of 75 three times")
}
