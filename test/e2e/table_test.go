package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
	"github.com/gpumux/gpumux/workflows"
)

// table writes a Parquet file of so many rows.
func table(t *testing.T, path string, rows int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	to := columns.NewWriter(file, nil)
	for i := range rows {
		require.NoError(t, to.Add(fmt.Appendf(nil, `{"index":%d,"value":{"id":"n%d","text":"text %d","size":%d}}`, i, i, i, 2*i)))
	}
	require.NoError(t, to.Finish())
}

// packed are the numbers below n, compressed.
func packed(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	to := bufio.NewWriter(w)
	_, err := to.WriteString(numbers(n))
	require.NoError(t, err)
	require.NoError(t, to.Flush())
	require.NoError(t, w.Close())
	return b.String()
}

// TestTable_InTheStore has maps over what lies in the workers' store, or elsewhere, one
// after the other on one worker.
func TestTable_InTheStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	here := newShell(t)
	here.at(s)
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "store", "in"), 0o755))
	for name, test := range map[string]func(*testing.T, *site, *shell){
		"ReadByAWorker": tableOfAWorker, "SourceOfAWorkflow": tableOfAWorkflow, "AnswersAreNoEnds": answersAreNoEnds,
		"RetryOfASourceThatChanged": changedSource, "InputFromAURL": inputFromURL,
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "store", "sources")))
			test(t, s, here)
		})
	}
}

// uploaded counts the inputs that clients have copied into the store.
func (s *site) uploaded() int {
	found, err := filepath.Glob(filepath.Join(s.dir, "store", "sources", "*.jsonl"))
	require.NoError(s.t, err)
	return len(found)
}

// A worker reads a table that lies in its store, of one command, of a workflow, of any
// client; nobody uploads its rows.
func tableOfAWorker(t *testing.T, s *site, here *shell) {
	inside := filepath.Join(s.dir, "store", "in", "x.parquet")
	table(t, inside, 3000)
	table(t, here.path("y.parquet"), 3000)
	mapping := func(file string, more ...string) []string {
		return append([]string{"map", "echo", "--in", "file://" + file, "--pool", "cpu", "--out", "r.jsonl"}, more...)
	}
	for i, file := range []string{inside, here.path("y.parquet")} {
		here.run(0, mapping(file, "--columns", "text,id", "--key", "id")...)
		lines := here.lines(here.file("r.jsonl"))
		require.Len(t, lines, 3000)
		require.Equal(t, `{"text":"text 2999","id":"n2999"}`, string(lines[2999]["value"]))
		require.Equal(t, `"n2999"`, string(lines[2999]["key"]))
		require.Equal(t, i, s.uploaded(), "only the table outside of the store was read here")
	}
	here.run(0, mapping(inside, "--columns", "size")...)
	require.Equal(t, `{"size":14}`, string(here.lines(here.file("r.jsonl"))[7]["value"]), "other columns are another map")

	p := here.run(2, mapping(inside, "--columns", "txt")...)
	require.Contains(t, p.stderr.String(), `store/in/x.parquet: there is no column "txt"; it has index, id, text, size, fault, fault_message`)
	p = here.run(2, mapping(inside, "--columns", "text", "--key", "id")...)
	require.Contains(t, p.stderr.String(), `the first item has no field "id"; it has text`)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(inside), "cut.parquet"), []byte(here.file("y.parquet")[:5000]), 0o644))
	p = here.run(2, mapping(filepath.Join(filepath.Dir(inside), "cut.parquet"))...)
	require.Contains(t, p.stderr.String(), "store/in/cut.parquet: not read as .parquet")
	binary := programtest.Binary(t)
	program := exec.CommandContext(t.Context(), "python3", "-c", connected, "file://"+inside)
	program.Dir = pythonClient(t)
	program.Env = append(here.env, "GPUMUX_BINARY="+binary, "GPUMUX_STORE="+s.store)
	output, err := program.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Equal(t, "{'text': 'text 7'}\n", string(output))
	require.Equal(t, 1, s.uploaded())
}

const connected = `
import os, sys, gpumux
cluster = gpumux.connect(os.environ["TEMPORAL_ADDRESS"], namespace=os.environ["TEMPORAL_NAMESPACE"])
results = list(cluster.map("echo", source=sys.argv[1], columns=["text"], pool="cpu", progress=False))
print(results[7].value)
`

// What pyarrow wrote is the source of a map that another client starts, and of one in a
// workflow.
func tableOfAWorkflow(t *testing.T, s *site, _ *shell) {
	service(t, s.client, map[string]any{"caller": workflows.MapSource})
	start := func(name, queue string, in gpumux.MapInput) (summary gpumux.Summary, err error) {
		run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, name, in)
		require.NoError(t, err)
		err = run.Get(t.Context(), &summary)
		return summary, err
	}
	kinds, err := os.ReadFile("../../internal/columns/testdata/kinds.parquet")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "store/in/kinds.parquet"), kinds, 0o644))
	in := gpumux.MapInput{Task: "echo", Source: "in/kinds.parquet", Columns: []string{"s", "ll"}, Ladder: []string{"cpu"}}
	for name, queue := range map[string]string{gpumux.MapWorkflow: gpumux.Queue, "caller": "service"} {
		summary, err := start(name, queue, in)
		require.NoError(t, err)
		results := s.results(summary)
		require.Len(t, results, 2)
		require.Equal(t, `{"s":"é\"x","ll":[[1.5],[]]}`, string(results[0].Value))
	}
	in.Columns = []string{"s", "no"}
	_, err = start(gpumux.MapWorkflow, gpumux.Queue, in)
	fault := workflows.FaultOf(err)
	require.Equal(t, gpumux.FaultBadInput, fault.Kind)
	require.Contains(t, fault.Message, `in/kinds.parquet: there is no column "no"; it has i8, u64, `)
	in.Columns = []string{"s", "s"}
	_, err = start(gpumux.MapWorkflow, gpumux.Queue, in)
	require.ErrorContains(t, err, `columns: have "s" twice`)
}

// Attempts that end with an answer, as while a store is away, are not those of workers
// that a file has ended, however many there are.
func answersAreNoEnds(t *testing.T, s *site, _ *shell) {
	file := filepath.Join(s.dir, "store", "in", "link.jsonl")
	require.NoError(t, os.Symlink("link.jsonl", file)) // which can be opened as little as a disk that is away
	run := s.start(gpumux.MapInput{Task: "brief", Source: "in/link.jsonl", Ladder: []string{"cpu"}, Output: "out.jsonl"})
	rig.Wait(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), "")
		require.NoError(t, err)
		return slices.ContainsFunc(d.PendingActivities, func(p *workflowpb.PendingActivityInfo) bool { return p.Attempt > 5 })
	}, time.Minute, 50*time.Millisecond)
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.WriteFile(file, []byte("1\n2\n"), 0o644))
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.EqualValues(t, 2, sum.Succeeded)
}

// A retry keeps results of the items that it had. Of a source that has changed it keeps
// none, and says so.
func changedSource(t *testing.T, s *site, here *shell) {
	file := filepath.Join(s.dir, "store", "in", "items.jsonl")
	require.NoError(t, os.WriteFile(file, []byte("1\n2\n3\n"), 0o644))
	here.run(1, "map", "half", "--in", "file://"+file, "--pool", "cpu", "--id", "changed", "--out", "r.jsonl")
	here.run(1, "retry", "changed", "--out", "r.jsonl")
	require.NoError(t, os.WriteFile(file, []byte("4\n5\n6\n"), 0o644))
	p := here.run(2, "retry", "changed", "--out", "r.jsonl")
	require.Contains(t, p.stderr.String(), "put the items back, or start a new map")
}

// A URL in the workers' store is read by them where it lies; any other is read here.
func inputFromURL(t *testing.T, s *site, here *shell) {
	inside := filepath.Join(s.dir, "store", "in")
	require.NoError(t, os.WriteFile(filepath.Join(inside, "a.jsonl.gz"), []byte(packed(t, 3000)), 0o644))
	here.write("b.jsonl.gz", packed(t, 3000))
	for i, file := range []string{filepath.Join(inside, "a.jsonl.gz"), here.path("b.jsonl.gz")} {
		p := here.run(0, "map", "echo", "--in", "file://"+file, "--pool", "cpu", "--json", "--out", "r.jsonl")
		var sum gpumux.Summary
		require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &sum))
		require.EqualValues(t, 3000, sum.Succeeded)
		require.Equal(t, i, s.uploaded(), "only the file outside of the store was copied")
	}
	p := here.run(2, "map", "echo", "--in", "file://"+here.path("none.jsonl"), "--pool", "cpu")
	require.Contains(t, p.stderr.String(), "no such file")
	require.True(t, strings.HasPrefix(p.stderr.String(), "gpumux: --in"), p.stderr.String())
}

// The rows of all files of a folder are one input in one order, so that a stopped map
// goes on with it.
func TestTable_AFolderIsOneInput(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for year, rows := range map[int]int{2023: 3, 2024: 2} {
		table(t, s.path(fmt.Sprintf("data/%d/part-0.parquet", year)), rows)
	}
	s.write("data/_SUCCESS", "")
	s.write("rows.py", `
import os, time
here = os.path.dirname(os.path.abspath(__file__))
def gate(row):
    calls = os.path.join(here, "calls")
    while os.path.exists(calls) and len(open(calls).readlines()) == 3 and not os.path.exists(os.path.join(here, "open")): time.sleep(0.01)
    open(calls, "a").write("%s\n" % row["size"])
    return row
def same(row): return row
`)
	args := []string{"map", "rows.py:gate", "--in", "data", "--columns", "size", "--local", "--slots", "1", "--option", "chunk=1", "--option", "window=1"}
	p := s.begin(append(args, "--out", "r.jsonl")...)
	rig.Wait(t, func() bool { return storedItems(t, s.path("state/gpumux/local/*/store")) == 3 }, time.Minute, 20*time.Millisecond,
		"the rows of the first file are stored")
	require.NoError(t, p.Process.Kill())
	require.Equal(t, -1, p.code())
	s.write("open", "")
	again := s.run(0, append(args, "--out", "r.jsonl")...)
	require.Contains(t, again.stderr.String(), "going on with map")
	want := []string{`{"size":0}`, `{"size":2}`, `{"size":4}`, `{"size":0}`, `{"size":2}`}
	for i, line := range s.lines(s.file("r.jsonl")) {
		require.Equal(t, want[i], string(line["value"]))
	}
	require.Equal(t, map[string]int{"0": 2, "2": 2, "4": 1}, s.calls())

	inside := s.run(2, append(args, "--out", "data/r.jsonl")...)
	require.Contains(t, inside.stderr.String(), "the results would lie among the files of --in")
	s.write("ids.csv", "id,n\n1e5,1e5\n")
	typed := s.run(0, "map", "rows.py:same", "--in", "ids*.csv", "--text", "id", "--local", "--out", "-")
	require.Equal(t, `{"index":0,"value":{"id":"1e5","n":100000.0}}`+"\n", typed.stdout.String())
	require.Contains(t, s.run(2, append(args, "--text", "size")...).stderr.String(), "--text go with text; a .parquet file has rows")
}

// A result that does not fit the declared columns costs its row, and nothing runs again
// for it: the same command writes the results with other columns, or as JSON lines.
func TestTable_DeclaredColumns(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("score.py", `
def score(item):
    with open("calls", "a") as calls:
        calls.write(f"{item}\n")
    return {"id": item, "score": "none" if item in (7, 8) else item / 2}
`)
	mapping := func(end string, more ...string) []string {
		return append([]string{"map", "score.py:score", "--range", "0:" + end, "--local", "--slots", "2"}, more...)
	}
	s.run(0, mapping("3", "--out", "types.parquet")...)
	p := s.run(2, mapping("20", "--out", "r.jsonl", "--schema", "types.parquet")...)
	require.Contains(t, p.stderr.String(), "--schema goes with --out FILE.parquet")
	p = s.run(2, mapping("20", "--out", "r.parquet", "--schema", "score.py")...)
	require.Contains(t, p.stderr.String(), "--schema: score.py: not read as .parquet")
	require.Len(t, s.calls(), 3, "nothing ran")

	columns := []string{"--out", "r.parquet", "--schema", "types.parquet"}
	for range 2 {
		p = s.run(1, mapping("20", columns...)...)
		require.Contains(t, p.stderr.String(), `do not fit --schema, and are faults in the file: 2 (item 7: score is "none", and is to be float64)`)
	}
	p = s.run(1, mapping("20", append(columns, "--json")...)...)
	require.Contains(t, p.stdout.String(), `"unfit": 2`)
	require.Len(t, s.state(), 1, "the results are kept")
	id := filepath.Base(s.state()[0])
	s.run(0, "map", "--in", "r.parquet", "--local", "--out", "rows.jsonl", "--", "cat")
	rows := s.lines(s.file("rows.jsonl"))
	require.JSONEq(t, `{"index":6,"id":6,"score":3,"fault":null,"fault_message":null}`, string(rows[6]["value"]))
	require.JSONEq(t, `{"index":7,"id":7,"score":null,"fault":"schema","fault_message":"score is \"none\", and is to be float64"}`, string(rows[7]["value"]))
	s.run(1, append([]string{"results", id}, columns...)...)
	s.run(0, mapping("20", "--out", "r.jsonl")...)
	require.Equal(t, `{"id":7,"score":"none"}`, string(s.lines(s.file("r.jsonl"))[7]["value"]))
	for item, times := range s.calls() {
		require.Equal(t, map[bool]int{true: 2, false: 1}[item < "3" && len(item) == 1], times, item)
	}
}
