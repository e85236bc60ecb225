package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workflows"
)

const secretPy = `
import os, time
here = os.path.dirname(os.path.abspath(__file__))
def secret(item):
    i, text = item["i"], item["text"]
    print("marker-printed", text)
    with open(os.path.join(here, "calls"), "a") as f: f.write("%d\n" % i)
    while i >= 700 and not os.path.exists(os.path.join(here, "open")): time.sleep(0.01)
    if i % 100 == 7: raise ValueError("marker-raised " + text)
    if i == 13: os.kill(os.getpid(), 9)
    return "marker-value " + text
def pick(pair): return max(pair)
def broken(pair): raise ValueError("marker-raised " + pair[0])
`

// vault is a host whose workers and clients have keys, or none.
type vault struct {
	*host
	keys []string // arguments of clients
	logs []*program
}

func newVault(t *testing.T, sealed bool) *vault {
	t.Helper()
	v := &vault{host: newHost(t)}
	v.write("secret.py", secretPy)
	file := "store: file://" + v.path("store") + "\npools: [{name: host, devices: cpu, slots: 2}]\ncontact: 2s\n" +
		"tasks: {secret: {python: \"secret.py:secret\"}, pick: {python: \"secret.py:pick\"}, broken: {python: \"secret.py:broken\"}, " +
		"double: {python: \"step.py:double\"}}\n"
	if sealed {
		require.NoError(t, os.Mkdir(v.path("keys"), 0o700))
		require.NoError(t, os.WriteFile(v.path("keys/main.key"), []byte(strings.Repeat("0f", 32)), 0o600))
		file += "codec: {keys: keys}\n"
		v.keys = []string{"--keys", "keys"}
	}
	v.write("worker.yaml", file)
	v.env = append(v.env, "GPUMUX_STORE=file://"+v.path("store"))
	return v
}

func (v *vault) worker() *program {
	p := v.host.worker()
	v.logs = append(v.logs, p)
	return p
}

// items writes a file of items.
func (v *vault) items(name string, n int) string {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "{\"i\":%d,\"text\":\"marker-item-%d\"}\n", i, i)
	}
	v.write(name, lines.String())
	return name
}

// marked are the files below a folder that hold a marker.
func (v *vault) marked(folder string) (found []string, files int) {
	v.t.Helper()
	require.NoError(v.t, filepath.WalkDir(v.path(folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("marker")) {
			found = append(found, path)
		}
		return err
	}))
	return found, files
}

func (v *vault) log() string {
	var all strings.Builder
	for _, p := range v.logs {
		all.WriteString(p.stderr.String() + p.stdout.String())
	}
	return all.String()
}

// run maps over more items than travel inline, and over few, while a worker is killed.
func (v *vault) run() {
	v.t.Helper()
	first := v.worker()
	large := v.begin(append([]string{"map", "secret", "--in", v.items("marker-large.jsonl", 1200), "--pool", "host", "--id", "large",
		"--attempts", "2", "--reduce", "pick", "--out", "large.out"}, v.keys...)...)
	rig.Wait(v.t, func() bool { return v.calls()["700"] > 0 }, 2*time.Minute, 20*time.Millisecond, "items run: %s", &large.stderr)
	require.NoError(v.t, first.Process.Kill())
	<-first.ended
	v.worker()
	v.write("open", "")
	require.Equal(v.t, 1, large.code(), "%s\n%s", &large.stderr, v.log())
	v.run1("map", "secret", "--in", v.items("marker-small.jsonl", 12), "--pool", "host", "--id", "small", "--out", "small.out")
	v.run1("map", "secret", "--in", "marker-small.jsonl", "--pool", "host", "--id", "fails", "--reduce", "broken", "--out", "fails.out")
	require.Len(v.t, v.lines(v.file("large.out")), 1200)
	require.Contains(v.t, v.file("large.out"), "marker-value marker-item-1199", "what was asked for is plain")
	require.Contains(v.t, v.file("large.out"), "marker-raised marker-item-107")
	require.Contains(v.t, v.file("small.out"), "marker-value marker-item-11")
}

// run1 runs a client whose map has failed items.
func (v *vault) run1(args ...string) *program {
	v.t.Helper()
	return v.shell.run(1, append(args, v.keys...)...)
}

func (v *vault) dial(o client.Options) client.Client {
	v.t.Helper()
	o.HostPort = v.address
	return dial(v.t, o)
}

// kept is all that Temporal tells of the maps to somebody without keys.
func (v *vault) kept() string {
	v.t.Helper()
	c := v.dial(client.Options{})
	var all strings.Builder
	list, err := c.ListWorkflow(v.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default"})
	require.NoError(v.t, err)
	require.Len(v.t, list.GetExecutions(), 3)
	fmt.Fprintln(&all, list)
	for _, id := range []string{"large", "small", "fails"} {
		described, err := c.DescribeWorkflowExecution(v.t.Context(), id, "")
		require.NoError(v.t, err)
		fmt.Fprintln(&all, described)
		for events := c.GetWorkflowHistory(v.t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
			event, err := events.Next()
			require.NoError(v.t, err)
			fmt.Fprintln(&all, event)
		}
		for _, query := range []string{gpumux.ProgressQuery, "__temporal_workflow_metadata"} {
			answer, err := c.QueryWorkflow(v.t.Context(), id, "", query)
			require.NoError(v.t, err)
			var raw converter.RawValue
			require.NoError(v.t, answer.Get(&raw))
			fmt.Fprintln(&all, raw.Payload())
		}
	}
	return all.String()
}

// An encrypted map leaves its items, values, prints, faults and the names of its files
// nowhere but in the file that its caller asked for. The same map without keys leaves
// them everywhere, so this test looks where they would be.
func TestEncrypted_LeavesNothingPlain(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string]bool{"Keys": true, "NoKeys": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, sealed)
			v.logs = append(v.logs, v.server("--verbose"))
			v.run()
			kept := v.kept()
			inData, files := v.marked("data")
			require.NotZero(t, files)
			inStore, objects := v.marked("store")
			require.Greater(t, objects, 3)
			require.Contains(t, v.log(), "\"kind\":\"crash\"", "faults are logged")
			if !sealed {
				require.NotEmpty(t, inData)
				require.NotEmpty(t, inStore)
				require.Contains(t, v.log(), "marker-raised")
				require.Contains(t, kept, "marker-raised", "of the current details")
				require.Contains(t, kept, "marker-item", "of the history")
				require.Contains(t, kept, "marker-small.jsonl", "of the memo")
				return
			}
			require.Empty(t, inData)
			require.Empty(t, inStore)
			require.NotContains(t, v.log(), "marker")
			require.NotContains(t, kept, "marker")
			require.Contains(t, kept, codec.Encoding)
			v.read()
		})
	}
}

// read reads an encrypted map in every way that there is.
func (v *vault) read() {
	t := v.t
	require.Contains(t, v.run1("results", "large").stdout.String(), "marker-value marker-item-1199")
	require.Contains(t, v.shell.run(0, append([]string{"show", "small"}, v.keys...)...).stdout.String(), "secret")
	for _, command := range [][]string{{"results", "large"}, {"map", "secret", "--in", "marker-small.jsonl", "--pool", "host", "--id", "small"}} {
		p := v.begin(command...)
		require.NotZero(t, p.code())
		require.Contains(t, p.stderr.String(), "GPUMUX_KEYS")
		require.Contains(t, p.stderr.String(), codec.Encoding)
	}
	v.refused()

	server := v.begin("codec-server", "--keys", "keys", "--listen", "127.0.0.1:"+programtest.FreePort(t))
	server.ready()
	endpoint := regexp.MustCompile(`http://127\.0\.0\.1:\d+/[0-9a-f]{32}`).FindString(server.stderr.String())
	remote := v.dial(client.Options{DataConverter: converter.NewRemoteDataConverter(converter.GetDefaultDataConverter(),
		converter.RemoteDataConverterOptions{Endpoint: endpoint})})
	var summary gpumux.Summary
	require.NoError(t, remote.GetWorkflow(t.Context(), "large", "").Get(t.Context(), &summary))
	require.EqualValues(t, 1200, summary.Items)
	require.Contains(t, string(summary.Reduced), "marker-value")
	v.env = append(v.env, "TEMPORAL_CODEC_ENDPOINT="+endpoint)
	require.Contains(t, v.shell.run(0, "show", "small").stdout.String(), "secret")
	v.write("remote.yaml", "store: file://"+v.path("store")+"\npools: [{name: remote, devices: cpu}]\ntasks: {secret: {python: \"secret.py:secret\"}}\n")
	v.begin("worker", "-f", "remote.yaml")
	p := v.shell.run(0, append([]string{"run", "secret", `{"i": 1, "text": "far"}`, "--pool", "remote"}, v.keys...)...)
	require.Contains(t, p.stdout.String(), "marker-value far", "a worker with a remote codec alone")
}

// refused starts maps without keys.
func (v *vault) refused() {
	t := v.t
	plain := v.shell.run(2, "map", "secret", "--in", "marker-small.jsonl", "--pool", "host", "--id", "plain")
	require.Contains(t, plain.stderr.String(), "give the workers' keys (--keys or GPUMUX_KEYS); nothing was sent")
	require.Contains(t, v.shell.run(0, "workers").stderr.String(), "give the workers' keys (--keys or GPUMUX_KEYS)")
	found, _ := v.marked("data")
	require.Empty(t, found)
	found, _ = v.marked("store")
	require.Empty(t, found)
	run, err := v.dial(client.Options{}).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: gpumux.Queue},
		gpumux.MapWorkflow, gpumux.MapInput{Task: "secret", Ladder: []string{"host"}, Range: &gpumux.Range{End: 3}})
	require.NoError(t, err)
	require.ErrorContains(t, run.Get(t.Context(), nil), "Encoded failure", "of a client that did not look")
	answer, err := v.dial(client.Options{}).DescribeWorkflowExecution(t.Context(), run.GetID(), "")
	require.NoError(t, err)
	require.Less(t, answer.GetWorkflowExecutionInfo().GetHistoryLength(), int64(10), "nothing ran")
}

// A map with --local keeps its server's database and its store in its folder, both
// encrypted.
func TestEncrypted_Local(t *testing.T) {
	t.Parallel()
	v := &vault{host: &host{shell: newShell(t)}, keys: []string{"--keys", "main.key"}}
	v.write("secret.py", secretPy)
	require.NoError(t, os.WriteFile(v.path("main.key"), []byte(strings.Repeat("0f", 32)), 0o600))
	args := []string{"map", "secret.py:secret", "--in", v.items("items.jsonl", 12), "--local", "--out", "r.jsonl"}
	v.run1(args...)
	require.Len(t, v.lines(v.file("r.jsonl")), 12)
	require.Len(t, v.state(), 1, "the failed item keeps it")
	found, files := v.marked("state")
	require.Greater(t, files, 3)
	require.Empty(t, found)
	p := v.begin(args...)
	require.NotZero(t, p.code())
	require.Contains(t, p.stderr.String(), "GPUMUX_KEYS", "without the keys it says what is missing")
	v.run1(append(args, "--retry")...)
	require.Equal(t, 1, v.calls()["0"])
	require.Equal(t, 2, v.calls()["7"])
	v.write("main.key", "0f")
	require.Contains(t, v.shell.run(2, append(args, v.keys...)...).stderr.String(), "main.key holds no key")
}

// flipped is a codec of a service's own.
type flipped struct{}

func flip(payloads []*commonpb.Payload, from, to string) []*commonpb.Payload {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if from != "" && string(p.Metadata[converter.MetadataEncoding]) != from {
			out[i] = p
			continue
		}
		data := bytes.Clone(p.Data)
		for at := range data {
			data[at] ^= 0xff
		}
		out[i] = &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(to)}, Data: data}
	}
	return out
}

func (flipped) Encode(p []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return flip(p, converter.MetadataEncodingJSON, "binary/flipped"), nil
}

func (flipped) Decode(p []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return flip(p, "binary/flipped", converter.MetadataEncodingJSON), nil
}

// doubled is a workflow of a service.
func doubled(ctx workflow.Context, pool string, texts []string) ([]string, error) {
	mapped, err := workflows.Map[string, string](ctx, gpumux.MapInput{Task: "double", Ladder: []string{pool}}, texts)
	if err != nil {
		return nil, err
	}
	return mapped.Values()
}

// A service with a codec of its own maps over workers that have the same one. Those
// without it say so once, in the place of trying for ever.
func TestEncrypted_AServicesOwnCodec(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := client.Options{Namespace: s.namespace}
	codec.Apply(&o, flipped{})
	c := dial(t, o)
	service(t, c, map[string]any{"doubled": doubled})
	s.worker("large", 1) // has no codec
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plain, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: gpumux.Queue}, gpumux.MapWorkflow,
		gpumux.MapInput{Task: "double", Ladder: []string{"large"}, Range: &gpumux.Range{End: 3}})
	require.NoError(t, err)
	chunk, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: "service"}, doubled, "large", []string{"a"})
	require.NoError(t, err)
	for _, run := range []client.WorkflowRun{plain, chunk} {
		err := run.Get(ctx, nil)
		require.NoError(t, ctx.Err())
		require.ErrorContains(t, err, "binary/flipped")
		require.ErrorContains(t, err, "codec.keys")
		fault := workflows.FaultOf(err)
		require.NotNil(t, fault)
		require.Equal(t, gpumux.FaultBadInput, fault.Kind)
	}

	s.apart(s.config("small", 2), workers.Options{Codec: flipped{}})
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "service"}, doubled, "small", []string{"marker", "b"})
	require.NoError(t, err)
	var got []string
	require.NoError(t, run.Get(ctx, &got))
	require.Equal(t, []string{"markermarker", "bb"}, got)
	for events := c.GetWorkflowHistory(ctx, run.GetID(), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		require.NoError(t, err)
		require.NotContains(t, event.String(), "marker")
	}
}
