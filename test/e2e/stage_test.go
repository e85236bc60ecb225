package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// stage is a namespace with a starter; the worker is started when a test wants it.
type stage struct {
	*starter.Starter
	t      *testing.T
	dir    string
	config config.Config
}

func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	namespace := devservertest.Namespace(t)
	c := devservertest.Dial(t, devservertest.Run(t), namespace)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "step.py"), []byte(stepPy), 0o644))
	s := &stage{Starter: &starter.Starter{Client: c, Namespace: namespace}, t: t, dir: dir, config: onCPU(cpuPool{
		Pool: "cpu", Slots: 8, TasksDir: dir, Dir: dir, Store: "file://" + filepath.Join(dir, "store"),
	})}
	t.Cleanup(s.Starter.Close)
	return s
}

// work starts a worker that stops with the test.
func fleetOf(s *starter.Starter) *fleet.Fleet {
	return &fleet.Fleet{Client: s.Client, Namespace: s.Namespace}
}

func (s *stage) work() {
	s.t.Helper()
	w, err := workers.New(s.config, workers.Options{Client: s.Client, Runtime: s.t.TempDir(), StopTimeout: time.Second})
	require.NoError(s.t, err)
	serve(s.t, w)
	require.Eventually(s.t, func() bool { // the server knows of it with its first request for work
		_, err := fleetOf(s.Starter).Offer(s.t.Context())
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

// over is a map over the numbers 0 to n-1.
func (s *stage) over(task string, n int64) starter.Map {
	return starter.Map{Input: gpumux.MapInput{Task: "step:" + task, Ladder: []string{"cpu"}, Range: &gpumux.Range{End: n}}}
}

func (s *stage) start(m starter.Map) *starter.Handle {
	s.t.Helper()
	h, err := s.Start(s.t.Context(), m)
	require.NoError(s.t, err)
	return h
}

func (s *stage) wait(h *starter.Handle) (gpumux.Summary, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	return h.Wait(ctx)
}

// calls are the lines that tasks left, one per finished item.
func (s *stage) calls() []string {
	text, err := os.ReadFile(filepath.Join(s.dir, "calls"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(s.t, err)
	return strings.Fields(string(text))
}

// allow makes a file that a task looks for.
func (s *stage) allow(name string) {
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), nil, 0o644))
}

// until polls a condition.
func (s *stage) until(what string, ok func() bool) {
	s.t.Helper()
	require.Eventually(s.t, ok, 5*time.Minute, 20*time.Millisecond, what)
}

// results are the lines of a finished map.
func (s *stage) results(h *starter.Handle) []gpumux.Result {
	s.t.Helper()
	var all []gpumux.Result
	for r, err := range h.Results(s.t.Context(), starter.ReadOptions{}) {
		require.NoError(s.t, err)
		require.EqualValues(s.t, len(all), r.Index)
		all = append(all, r)
	}
	return all
}
