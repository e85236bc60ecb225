package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/storetest"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

var record = flag.Bool("record", false, "write the histories that the replay tests of package workflows read")

const mapPy = `
import json, os, signal, time

def note(item):
    # the log tells how often each item was run to its end
    with open(os.environ["CALLS"], "a") as f: f.write(f"{item}\n")
def call(item):
    note(item)
    return [item, os.getpid()]
def double(x): return 2 * x
def fail(x):
    if x % 3 == 0: raise ValueError(f"{x} is a multiple of three")
    return x
def slow(x):
    note(x)
    time.sleep(x); return os.getpid()
def die(x):
    # {"i": n, "die": "never" | "once" | "always"}
    marker = os.path.join(os.environ["MARKERS"], str(x["i"]))
    if x["die"] == "always" or x["die"] == "once" and not os.path.exists(marker):
        open(marker, "a").write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    note(x["i"])
    return x["i"]
def greedy(x):
    if x == 3 and os.environ["POOL"] == "small": raise MemoryError("not in this pool")
    return [x, os.environ["POOL"]]
def paced(x):
    time.sleep(0.005); note(x)
    return [x, os.environ["POOL"]]
def whole(x):
    import gpumux
    memory = gpumux.slot().memory
    if x == 3 and memory < 400 << 20: raise MemoryError("needs the device")
    return [x, memory]
def big(n): return "x" * n
def wait(path):
    note("waits")
    while not os.path.exists(path): time.sleep(0.01)
def brief(item):
    time.sleep(0.005); note(item); return item
def gate(item):
    # stops at every hundredth item until the test lets it on
    while item % 100 == 99 and not os.path.exists(os.environ["CALLS"] + f".open{item // 100}"): time.sleep(0.005)
    note(item); return item
def echo(item): return item
def half(item):
    if item % 2: raise ValueError("odd")
    return item / 2
def text(item): return f"{item} "
`

// site is a namespace with workers, a store and a client.
type site struct {
	t         testing.TB
	namespace string
	client    client.Client
	dir       string
	store     string
	calls     string
}

func newSite(t testing.TB) *site {
	t.Helper()
	namespace := devservertest.Namespace(t)
	s := &site{t: t, namespace: namespace, client: devservertest.Dial(t, devservertest.Run(t), namespace), dir: t.TempDir()}
	s.store, s.calls = "file://"+filepath.Join(s.dir, "store"), filepath.Join(s.dir, "calls")
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "map.py"), []byte(mapPy), 0o644))
	s.forget()
	return s
}

// config has one pool of CPU slots and every function of map.py as a task.
func (s *site) config(pool string, slots int) config.Config {
	tasks := map[string]config.Task{}
	for _, f := range []string{"call", "double", "fail", "slow", "die", "greedy", "paced", "big", "whole", "wait", "brief", "gate", "echo", "half", "text"} {
		tasks[f] = config.Task{Python: "map.py:" + f, Env: map[string]string{
			"CALLS": s.calls, "MARKERS": filepath.Join(s.dir, "markers"), "POOL": pool,
		}}
	}
	return onCPU(cpuPool{
		Pool: pool, Slots: slots, Tasks: tasks, Dir: s.dir, Store: s.store,
	})
}

func (s *site) worker(pool string, slots int) *workers.Worker {
	s.t.Helper()
	return s.serve(s.config(pool, slots))
}

func (s *site) serve(c config.Config) *workers.Worker {
	s.t.Helper()
	w, err := workers.New(c, workers.Options{Client: s.client, Dedicated: true, StopTimeout: time.Second, Grace: time.Second})
	require.NoError(s.t, err)
	serve(s.t, w)
	return w
}

// apart starts a worker that connects by itself, not by the site's client.
func (s *site) apart(c config.Config, o workers.Options) *workers.Worker {
	s.t.Helper()
	c.Temporal = config.Temporal{Address: devservertest.Run(s.t).Address(), Namespace: s.namespace}
	o.StopTimeout, o.Grace = time.Second, time.Second
	w, err := workers.New(c, o)
	require.NoError(s.t, err)
	serve(s.t, w)
	return w
}

// dial connects to a server, that of all tests by default, in silence.
func dial(t testing.TB, o client.Options) client.Client {
	t.Helper()
	o.HostPort = cmp.Or(o.HostPort, devservertest.Run(t).Address())
	o.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.Dial(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// service starts somebody's own worker of workflows, by name, on the queue "service".
func service(t testing.TB, c client.Client, workflows map[string]any) {
	t.Helper()
	w := worker.New(c, "service", worker.Options{})
	for name, f := range workflows {
		w.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

// each runs tests on a site one after the other, with empty logs.
func (s *site) each(tests map[string]func(*site)) {
	for name, test := range tests {
		s.t.(*testing.T).Run(name, func(t *testing.T) {
			sub := *s
			sub.t = t
			sub.forget()
			test(&sub)
		})
	}
}

// serve starts a worker that stops with the test.
func serve(t testing.TB, w *workers.Worker) {
	t.Helper()
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, w.Stop(ctx))
	})
}

func (s *site) start(in gpumux.MapInput) client.WorkflowRun {
	s.t.Helper()
	run, err := s.client.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{
		ID: "map-" + strings.ReplaceAll(in.Name(), " > ", "-"), TaskQueue: gpumux.Queue, StaticSummary: "map " + in.Name(),
	}, gpumux.MapWorkflow, in)
	require.NoError(s.t, err)
	return run
}

func (s *site) run(in gpumux.MapInput) (gpumux.Summary, error) {
	s.t.Helper()
	var sum gpumux.Summary
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	run := s.start(in)
	err := run.Get(ctx, &sum)
	require.NoError(s.t, ctx.Err(), "the map did not end")
	s.keep(run)
	return sum, err
}

// keep writes the history for the replay tests when asked to.
func (s *site) keep(run client.WorkflowRun) {
	name := strings.Replace(strings.TrimPrefix(s.t.Name(), "Test"), "_Kinds/", "_", 1)
	if !*record || strings.Contains(name, "/") {
		return
	}
	h := history.History{}
	iter := s.client.GetWorkflowHistory(s.t.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iter.HasNext() {
		event, err := iter.Next()
		require.NoError(s.t, err)
		h.Events = append(h.Events, event)
	}
	data, err := protojson.Marshal(&h)
	require.NoError(s.t, err)
	data = regexp.MustCompile(`"data":\s*"([^"]*)"`).ReplaceAllFunc(data, func(field []byte) []byte {
		_, text, _ := bytes.Cut(field, []byte(`:`))
		plain, err := base64.StdEncoding.DecodeString(strings.Trim(string(text), `" `))
		require.NoError(s.t, err)
		return fmt.Appendf(nil, `"data":%q`, base64.StdEncoding.EncodeToString(s.anonymous(plain)))
	})
	data = s.anonymous(data)
	if _, segment, ok := strings.Cut(run.GetID(), ".segment-"); ok {
		name += "_segment-" + segment
	}
	name += ".json"
	require.NoError(s.t, os.WriteFile(filepath.Join("../../workflows/testdata", name), data, 0o644))
}

// anonymous takes this machine's name and folders out of a history.
func (s *site) anonymous(data []byte) []byte {
	host, err := os.Hostname()
	require.NoError(s.t, err)
	for from, to := range map[string]string{s.dir: "/data", host: "host"} {
		data = bytes.ReplaceAll(data, []byte(from), []byte(to))
	}
	return data
}

func items(values ...any) []json.RawMessage {
	list := []json.RawMessage{}
	for _, v := range values {
		raw, _ := json.Marshal(v)
		list = append(list, raw)
	}
	return list
}

// source spools lines into the store and returns the source's URL.
func (s *site) source(lines string) string {
	s.t.Helper()
	spooled, err := starter.Spool(strings.NewReader(lines), "test.jsonl")
	require.NoError(s.t, err)
	source, err := s.starter().Put(s.t.Context(), spooled)
	require.NoError(s.t, err)
	return source
}

// results reads the results file and checks that each index is there once, in order.
func (s *site) results(sum gpumux.Summary) []gpumux.Result {
	s.t.Helper()
	list := sum.Results
	if sum.Output != "" {
		list = nil
		st, err := store.Open(s.t.Context(), s.store)
		require.NoError(s.t, err)
		defer st.Close()
		for r, err := range storetest.Results(s.t.Context(), st, sum.Output) {
			require.NoError(s.t, err)
			list = append(list, r)
		}
	}
	require.Len(s.t, list, int(sum.Items))
	for i, r := range list {
		require.EqualValues(s.t, i, r.Index)
	}
	return list
}

// seen counts how often each item was run to its end.
func (s *site) seen() map[string]int {
	s.t.Helper()
	data, err := os.ReadFile(s.calls)
	require.NoError(s.t, err)
	seen := map[string]int{}
	for _, line := range strings.Fields(string(data)) {
		seen[line]++
	}
	return seen
}

// forget empties the tasks' logs for the next map.
func (s *site) forget() {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.calls, nil, 0o644))
	require.NoError(s.t, os.RemoveAll(filepath.Join(s.dir, "markers")))
	require.NoError(s.t, os.Mkdir(filepath.Join(s.dir, "markers"), 0o755))
}

// progress is what a map tells of itself while it runs.
func (s *site) progress(run client.WorkflowRun) (p gpumux.Progress) {
	s.t.Helper()
	answer, err := s.client.QueryWorkflow(s.t.Context(), run.GetID(), run.GetRunID(), gpumux.ProgressQuery)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Get(&p))
	return p
}

// update steers a map.
func (s *site) update(run client.WorkflowRun, name string) {
	s.t.Helper()
	h, err := s.client.UpdateWorkflow(s.t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: run.GetID(), UpdateName: name, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(s.t, err)
	require.NoError(s.t, h.Get(s.t.Context(), nil))
}

// calledOnce checks the tasks' own log: every item ran to its end exactly once.
func (s *site) calledOnce(n int) {
	s.t.Helper()
	seen := s.seen()
	for item, times := range seen {
		require.Equal(s.t, 1, times, "item %s ran %d times", item, times)
	}
	require.Len(s.t, seen, n)
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strconv.Itoa(i) + "\n")
	}
	return b.String()
}
