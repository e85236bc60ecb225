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

	"github.com/gpumux/gpumux"
)

// A map of two stages in pools of their own, while a worker is killed and the store is
// away.
func TestStages(t *testing.T) {
	inCluster(t)
	both := workers(t)
	s := in("default")
	server, err := client.Dial(client.Options{HostPort: s.address, Namespace: s.namespace, Logger: silent})
	require.NoError(t, err)
	defer server.Close()
	j := (&job{site: s, items: 600, seconds: 0.05}).name("stages")
	arg, err := json.Marshal(map[string]any{"log": j.log, "seconds": j.seconds})
	require.NoError(t, err)
	began := time.Now()
	run, err := server.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: j.id, TaskQueue: gpumux.Queue}, gpumux.MapWorkflow,
		gpumux.MapInput{Range: &gpumux.Range{End: j.items}, Arg: arg, Stages: []gpumux.Stage{
			{Task: "work", Ladder: []string{"cpu"}}, {Task: "triple", Ladder: []string{"long"}},
		}})
	require.NoError(t, err)
	j.runs(t, 100)
	require.NoError(t, both[0].end(syscall.SIGKILL))
	require.NoError(t, both[0].start())
	j.runs(t, 300)
	away, err := c.processes["versitygw"].away(syscall.SIGKILL, 5*time.Second)
	require.NoError(t, err)
	var summary gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &summary))
	require.Len(t, summary.Results, int(j.items))
	for i, result := range summary.Results {
		require.Equal(t, int64(i), result.Index)
		require.Equal(t, fmt.Sprint(9*i), string(result.Value))
	}
	for _, stage := range summary.Stages {
		require.Equal(t, j.items, stage.Succeeded, stage.Task)
	}
	twice, err := j.ran()
	record(t, row{part: "two stages, a worker killed and S3 away", items: j.items, twice: twice, took: time.Since(began), err: err,
		note: fmt.Sprintf("away for %.1f s", away.Seconds())})
}
