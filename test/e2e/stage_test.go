package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// stage is a site with a starter; the worker is started when a test wants it, and offers
// every function of the files in the site's folder.
type stage struct {
	*starter.Starter
	site   *site
	t      testing.TB
	dir    string
	config config.Config
	logged *observer.ObservedLogs // from warnings up
}

func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	site := newSite(t)
	s := &stage{Starter: &starter.Starter{Client: site.client, Namespace: site.namespace}, site: site, t: t, dir: site.dir,
		config: onCPU(cpuPool{Pool: "cpu", Slots: 8, TasksDir: site.dir, Dir: site.dir, Store: site.store})}
	require.NoError(t, os.Remove(filepath.Join(s.dir, "map.py"))) // whose functions it would offer, too
	s.write("step.py", stepPy)
	t.Cleanup(s.Close)
	return s
}

func (s *stage) write(name, text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644))
}

// work starts a worker that stops with the test.
func (s *stage) work() {
	s.t.Helper()
	core, logged := observer.New(zap.WarnLevel)
	w, err := workers.New(s.config, workers.Options{Client: s.Client, Runtime: s.t.TempDir(), StopTimeout: time.Second, Log: zap.New(core)})
	require.NoError(s.t, err)
	serve(s.t, w)
	s.logged = logged
	s.until("the server knows of it with its first request for work", func() bool {
		_, err := fleetOf(s.Starter).Offer(s.t.Context())
		return err == nil
	})
}

func fleetOf(s *starter.Starter) *fleet.Fleet {
	return &fleet.Fleet{Client: s.Client, Namespace: s.Namespace}
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

// done runs a map that ends well.
func (s *stage) done(m starter.Map) (*starter.Handle, gpumux.Summary) {
	s.t.Helper()
	h := s.start(m)
	summary, err := s.wait(h)
	require.NoError(s.t, err)
	return h, summary
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

// forget removes what tasks left and look for.
func (s *stage) forget() {
	for _, name := range []string{"calls", "open", "fixed"} {
		require.NoError(s.t, os.RemoveAll(filepath.Join(s.dir, name)))
	}
}

// until polls a condition.
func (s *stage) until(what string, ok func() bool) {
	s.t.Helper()
	rig.Wait(s.t, ok, 5*time.Minute, 20*time.Millisecond, what)
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

// values are those of the results of a finished map.
func (s *stage) values(h *starter.Handle) (values []string) {
	s.t.Helper()
	for _, r := range s.results(h) {
		values = append(values, string(r.Value))
	}
	return values
}
