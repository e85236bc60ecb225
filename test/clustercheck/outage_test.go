//go:build linux

package clustercheck

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
)

// kept is how long items run on at least while nothing answers (docs/faults.md); a
// shorter outage costs no second run.
const kept = 7 * time.Second

// load is a map of short items and one of long ones in the default namespace, both under
// way.
func load(t *testing.T, name string, short, long int64) [2]*job {
	t.Helper()
	workers(t)
	name = strings.NewReplacer("/", "-", " ", "-").Replace(name)
	all := [2]*job{
		{site: in("default"), items: short, seconds: 0.1, pool: "cpu"},
		{site: in("default"), items: long, seconds: 14, pool: "long"},
	}
	for i, j := range all {
		j.begin(t, fmt.Sprintf("%s-%s", strings.ToLower(name), j.pool))
		all[i].runs(t, 2)
	}
	return all
}

// outage takes processes away under load for a time, one after the other.
func outage(t *testing.T, part string, minimum time.Duration, signals map[*process]syscall.Signal) {
	t.Helper()
	jobs := load(t, t.Name(), 120, 2)
	longest := time.Duration(0)
	for p, signal := range signals {
		took, err := p.away(signal, minimum)
		require.NoError(t, err)
		longest = max(longest, took)
	}
	largest := int64(-1)
	if longest < kept {
		largest = 0
	}
	for _, j := range jobs {
		note := fmt.Sprintf("away for %.1f s", longest.Seconds())
		judge(t, fmt.Sprintf("%s, items of %g s", part, j.seconds), largest, note, j)
	}
}

// Each of Temporal's services killed and stopped, and back after three seconds.
func TestOutage_Services(t *testing.T) {
	inCluster(t)
	for _, service := range []string{"frontend", "history", "matching", "worker"} {
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			word := map[syscall.Signal]string{syscall.SIGKILL: "killed", syscall.SIGTERM: "stopped"}[signal]
			t.Run(service+"/"+word, func(t *testing.T) {
				outage(t, service+" "+word, 3*time.Second, map[*process]syscall.Signal{c.processes[service]: signal})
			})
		}
	}
}

// The database and the store are away for longer than items run on without a server.
func TestOutage_Database(t *testing.T) {
	inCluster(t)
	p := c.processes["postgresql"]
	outage(t, "PostgreSQL away", 15*time.Second, map[*process]syscall.Signal{p: p.asked()})
}

func TestOutage_Store(t *testing.T) {
	inCluster(t)
	outage(t, "S3 away", 15*time.Second, map[*process]syscall.Signal{c.processes["versitygw"]: syscall.SIGKILL})
}

// Maps whose results go through their workflow alone, in place of the store.
func TestOutage_WithoutStore(t *testing.T) {
	inCluster(t)
	workers(t)
	history, database := c.processes["history"], c.processes["postgresql"]
	t.Run("history", func(t *testing.T) { withoutStore(t, "history killed", 300, history, syscall.SIGKILL, 3*time.Second) })
	// Enough for chunks of 10 s, which are longer than they may run on.
	t.Run("PostgreSQL", func(t *testing.T) {
		withoutStore(t, "PostgreSQL away", 700, database, database.asked(), 15*time.Second)
	})
}

func withoutStore(t *testing.T, part string, items int64, p *process, signal syscall.Signal, minimum time.Duration) {
	t.Helper()
	s := in("default")
	server, err := client.Dial(client.Options{HostPort: s.address, Namespace: s.namespace, Logger: silent})
	require.NoError(t, err)
	defer server.Close()
	j := (&job{site: s, items: items, seconds: 0.1}).name("without-store-" + p.name)
	began := time.Now()
	run, err := server.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: j.id, TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, j.inline(t))
	require.NoError(t, err)
	j.runs(t, 100)
	away, err := p.away(signal, minimum)
	require.NoError(t, err)
	var summary gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &summary))
	requireTriples(t, summary, j.items)
	twice, err := j.ran()
	record(t, row{part: part + ", without a store", items: j.items, twice: twice, took: time.Since(began), err: err,
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
