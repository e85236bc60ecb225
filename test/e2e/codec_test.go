package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/test/codectest"
	"github.com/gpumux/gpumux/internal/test/rig"
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
`

// vault is a host whose workers and clients have a codec, or none.
type vault struct {
	*host
	endpoint string // the codec's server
	logs     []*program
}

func newVault(t *testing.T, encoded bool) *vault {
	t.Helper()
	v := &vault{host: newHost(t)}
	v.write("secret.py", secretPy)
	v.write("worker.yaml", "store: file://"+v.path("store")+"\npools: [{name: host, devices: cpu, slots: 2}]\ncontact: 2s\n"+
		"tasks: {secret: {python: \"secret.py:secret\"}, double: {python: \"step.py:double\"}}\n")
	v.env = append(v.env, "GPUMUX_STORE=file://"+v.path("store"))
	if encoded {
		server := httptest.NewServer(converter.NewPayloadCodecHTTPHandler(codectest.Flipped{}))
		t.Cleanup(server.Close)
		v.endpoint = server.URL
		v.env = append(v.env, "TEMPORAL_CODEC_ENDPOINT="+server.URL)
	}
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
	large := v.begin("map", "secret", "--in", v.items("marker-large.jsonl", 1200), "--pool", "host", "--id", "large",
		"--attempts", "2", "--out", "large.out")
	holds := func() bool { // which of the items that wait comes first is the chunks' affair
		for item := range v.calls() {
			if i, _ := strconv.Atoi(item); i >= 700 {
				return true
			}
		}
		return false
	}
	rig.Wait(v.t, holds, 2*time.Minute, 20*time.Millisecond, "items run: %s", &large.stderr)
	require.NoError(v.t, first.Process.Kill())
	<-first.ended
	v.worker()
	v.write("open", "")
	require.Equal(v.t, 1, large.code(), "%s\n%s", &large.stderr, v.log())
	v.shell.run(1, "map", "secret", "--in", v.items("marker-small.jsonl", 12), "--pool", "host", "--id", "small", "--out", "small.out")
	require.Len(v.t, v.lines(v.file("large.out")), 1200)
	require.Contains(v.t, v.file("large.out"), "marker-value marker-item-1199", "what was asked for is plain")
	require.Contains(v.t, v.file("large.out"), "marker-raised marker-item-107")
	require.Contains(v.t, v.file("small.out"), "marker-value marker-item-11")
}

func (v *vault) dial(o client.Options) client.Client {
	v.t.Helper()
	o.HostPort = v.address
	return dial(v.t, o)
}

// kept is all that Temporal tells of the maps to somebody without the codec.
func (v *vault) kept() string {
	v.t.Helper()
	c := v.dial(client.Options{})
	var all strings.Builder
	list, err := c.ListWorkflow(v.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default"})
	require.NoError(v.t, err)
	require.Len(v.t, list.GetExecutions(), 2)
	fmt.Fprintln(&all, list)
	for _, id := range []string{"large", "small"} {
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

// Temporal has no item, value, print, fault or name of a file of a map with a codec, and
// what the store has is plain. The same map without a codec leaves them everywhere, so
// this test looks where they would be.
func TestCodec_LeavesNothingPlainInTemporal(t *testing.T) {
	t.Parallel()
	for name, encoded := range map[string]bool{"Codec": true, "None": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault(t, encoded)
			v.logs = append(v.logs, v.server("--verbose"))
			v.run()
			kept := v.kept()
			inData, files := v.marked("data")
			require.NotZero(t, files)
			inStore, _ := v.marked("store")
			require.NotEmpty(t, inStore)
			if !encoded {
				require.NotEmpty(t, inData)
				require.Contains(t, kept, "marker-raised", "of the current details")
				require.Contains(t, kept, "marker-item", "of the history")
				require.Contains(t, kept, "marker-small.jsonl", "of the memo")
				return
			}
			require.Empty(t, inData)
			require.NotContains(t, kept, "marker")
			require.Contains(t, kept, codectest.Encoding)
			v.read()
		})
	}
}

// read reads an encoded map with the codec and without.
func (v *vault) read() {
	t := v.t
	require.Contains(t, v.shell.run(1, "results", "large").stdout.String(), "marker-value marker-item-1199")
	require.Contains(t, v.shell.run(0, "show", "small").stdout.String(), "secret")
	c := v.dial(client.Options{DataConverter: converter.NewRemoteDataConverter(converter.GetDefaultDataConverter(),
		converter.RemoteDataConverterOptions{Endpoint: v.endpoint})})
	var summary gpumux.Summary
	require.NoError(t, c.GetWorkflow(t.Context(), "large", "").Get(t.Context(), &summary))
	require.EqualValues(t, 1200, summary.Items)

	v.env = append(v.env, "TEMPORAL_CODEC_ENDPOINT=")
	for _, command := range [][]string{{"results", "large"}, {"map", "secret", "--in", "marker-small.jsonl", "--pool", "host", "--id", "small"}} {
		p := v.begin(command...)
		require.NotZero(t, p.code())
		require.Contains(t, p.stderr.String(), "its server in TEMPORAL_CODEC_ENDPOINT")
		require.Contains(t, p.stderr.String(), codectest.Encoding)
	}
	require.Contains(t, v.shell.run(0, "workers").stderr.String(), "TEMPORAL_CODEC_ENDPOINT")
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
func TestCodec_OfAService(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := client.Options{Namespace: s.namespace}
	codec.Apply(&o, codectest.Flipped{})
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
		require.ErrorContains(t, err, codectest.Encoding)
		require.ErrorContains(t, err, "TEMPORAL_CODEC_ENDPOINT")
		fault := workflows.FaultOf(err)
		require.NotNil(t, fault)
		require.Equal(t, gpumux.FaultBadInput, fault.Kind)
	}

	s.apart(s.config("small", 2), workers.Options{Codec: codectest.Flipped{}})
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
