//go:build linux

package clustercheck

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// A workflow in another namespace maps by Nexus, and history is killed meanwhile.
func TestOutage_Nexus(t *testing.T) {
	inCluster(t)
	workers(t)
	_, err := c.cli("operator", "nexus", "endpoint", "create", "--name", "gpumux", "--target-namespace", "default", "--target-task-queue", gpumux.Queue)
	require.NoError(t, err)
	team, err := client.Dial(client.Options{HostPort: in("blue", "blue").address, Namespace: "blue", Logger: silent})
	require.NoError(t, err)
	defer team.Close()
	w := worker.New(team, "team", worker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context, in gpumux.MapInput) (summary gpumux.Summary, err error) {
		err = workflow.NewNexusClient("gpumux", gpumux.NexusService).
			ExecuteOperation(ctx, gpumux.MapOperation, in, workflow.NexusOperationOptions{}).Get(ctx, &summary)
		return summary, err
	}, workflow.RegisterOptions{Name: "ask"})
	require.NoError(t, w.Start())
	defer w.Stop()

	j := (&job{site: in("default", "main"), items: 120, seconds: 0.1}).name("by-nexus")
	began := time.Now()
	run, err := team.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "asks", TaskQueue: "team"}, "ask", j.inline(t))
	require.NoError(t, err)
	j.runs(t, 20)
	away, err := c.processes["history"].away(syscall.SIGKILL, 3*time.Second)
	require.NoError(t, err)
	var summary gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &summary))
	requireTriples(t, summary, j.items)
	twice, err := j.ran()
	record(t, row{part: "a map by Nexus, history killed", items: j.items, twice: twice, took: time.Since(began), err: err,
		note: fmt.Sprintf("away for %.1f s", away.Seconds())})
}

// inline is the map's input with its items.
func (j *job) inline(t *testing.T) gpumux.MapInput {
	t.Helper()
	arg, err := json.Marshal(map[string]any{"log": j.log, "seconds": j.seconds})
	require.NoError(t, err)
	in := gpumux.MapInput{Task: "work", Ladder: []string{"cpu"}, Arg: arg}
	for i := range j.items {
		in.Items = append(in.Items, json.RawMessage(fmt.Sprint(i)))
	}
	return in
}

// requireTriples checks the results of the first numbers, which are in the summary.
func requireTriples(t *testing.T, summary gpumux.Summary, items int64) {
	t.Helper()
	require.Len(t, summary.Results, int(items))
	for i, result := range summary.Results {
		require.Equal(t, int64(i), result.Index)
		require.Equal(t, fmt.Sprint(3*i), string(result.Value))
	}
}
