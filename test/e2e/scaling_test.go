package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/test/programtest"
	"github.com/gpumux/gpumux/workers"
)

const steadyPy = stepPy + `
def steady(item):
    time.sleep(0.2)
    mark(item)
    return item
`

// An autoscaler that reads the metric of a small worker brings a pool from nobody to
// three workers and back, while maps run. Each item runs once.
func TestLong_ScalingFromZeroAndBack(t *testing.T) {
	s := newStage(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "step.py"), []byte(steadyPy), 0o644))
	s.config.Temporal.Namespace = s.Namespace
	large := s.config
	port := programtest.FreePort(t)
	s.config = onCPU(cpuPool{Pool: "light", Slots: 1, TasksDir: s.dir, Dir: s.dir, Store: s.config.Store})
	s.config.Temporal.Namespace, s.config.Metrics, s.config.Backlog = s.Namespace, "127.0.0.1:"+port, []string{"cpu"}
	s.work()

	const items = 300
	first, second := s.start(s.over("steady", items)), s.over("steady", items)
	second.ID = "second"
	other := s.start(second)
	s.until("nobody serves the pool, and its backlog is known", func() bool {
		backlog, silent, err := fleetOf(s.Starter).Backlog(t.Context())
		return err == nil && silent == nil && maps.Equal(map[string]fleet.Backlog{"cpu": {Items: 2 * items}}, backlog)
	})

	var running []*workers.Worker
	largest, line := 0, regexp.MustCompile(`(?m)^gpumux_backlog_items\{pool="cpu"\} (\S+)$`)
	read := func() (left float64, known bool) {
		answer, err := http.Get("http://127.0.0.1:" + port + "/metrics")
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		found := line.FindSubmatch(text)
		if found == nil {
			return 0, false
		}
		left, err = strconv.ParseFloat(string(found[1]), 64)
		require.NoError(t, err)
		return left, true
	}
	scale := func(want int) {
		for len(running) < want {
			c := large
			c.Pools[0].Slots = 2
			w, err := workers.New(c, workers.Options{Client: devservertest.Dial(t, devservertest.Run(t), s.Namespace), Runtime: t.TempDir()})
			require.NoError(t, err)
			require.NoError(t, w.Start(t.Context()))
			running = append(running, w)
		}
		for len(running) > want {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			require.NoError(t, running[0].Stop(ctx))
			cancel()
			running = running[1:]
		}
		largest = max(largest, len(running))
	}
	t.Cleanup(func() { scale(0) })
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := -1.0
	for began := time.Now(); largest == 0 || len(running) > 0; <-tick.C {
		left, known := read()
		if left != last {
			t.Logf("%s: %g items left, %d workers", time.Since(began).Round(time.Second), left, len(running))
		}
		last = left
		require.Less(t, time.Since(began), 5*time.Minute)
		switch {
		case !known:
		case left > items*3/2:
			scale(3)
		case left > 0:
			scale(1)
		default:
			scale(0)
		}
	}
	require.Equal(t, 3, largest)
	_, err := s.wait(first)
	require.NoError(t, err)
	_, err = s.wait(other)
	require.NoError(t, err)
	count := map[string]int{}
	for _, call := range s.calls() {
		count[call]++
	}
	require.Len(t, count, items)
	for i := range items {
		require.Equal(t, 2, count[fmt.Sprint(i)], "once in each map: item %d", i)
	}
	require.Len(t, s.results(first), items)
}
