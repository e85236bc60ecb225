//go:build linux

package clustercheck

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// The server that Temporal's command brings is 1.29, the least version, with its own
// settings: a map, a cancelled map, a failed item, ls and show.
func TestStock(t *testing.T) {
	inCluster(t)
	port := programtest.FreePort(t)
	s := site{address: "127.0.0.1:" + port, namespace: "default", store: "file://" + filepath.Join(c.dir, "stock")}
	server := c.add(&process{name: "stock-server", ready: serves(s.address, "WorkflowService"),
		argv: []string{c.program("temporal"), "server", "start-dev", "--headless", "--port", port, "--log-level", "warn"}})
	require.NoError(t, server.start())
	defer func() { require.NoError(t, server.end(server.asked())) }()
	host := s.worker("worker-stock", atWorkers+7, "")
	require.NoError(t, host.start())
	defer func() { require.NoError(t, host.end(host.asked())) }()

	judge(t, "stock server, a map", 0, "", (&job{site: s, items: 20_000, pool: "cpu"}).begin(t, "stock"))

	part := func(name string, items int64, check func(t *testing.T)) {
		began := time.Now()
		var err error
		if !t.Run(name, check) {
			err = errors.New("see above")
		}
		report = append(report, row{part: "stock server, " + name, items: items, took: time.Since(began), err: err})
	}
	part("a failed item", 4, func(t *testing.T) {
		out := s.run(t, 1, "map", "odd", "--range", "0:4", "--pool", "cpu", "--id", "stock-odd", "--out", "-")
		require.Equal(t, 4, strings.Count(out, "\n"))
		require.Contains(t, out, `{"index":2,"value":2}`)
		require.Contains(t, out, "3 is odd")
		require.Contains(t, s.run(t, 0, "show", "stock-odd"), "ValueError")
	})
	part("a cancelled map", 2, func(t *testing.T) {
		j := (&job{site: s, items: 2, seconds: 600, pool: "long"}).begin(t, "stock-cancelled")
		j.runs(t, 1)
		s.run(t, 0, "cancel", j.id)
		<-j.ended
		require.NotZero(t, j.code)
	})
	part("ls and show", 0, func(t *testing.T) {
		var shown struct{ Status string }
		require.NoError(t, json.Unmarshal([]byte(s.run(t, 0, "show", "stock-cancelled", "--json")), &shown))
		require.Equal(t, "canceled", strings.ToLower(shown.Status))
		// Lists follow some time after.
		rig.Wait(t, func() bool {
			listed := s.run(t, 0, "ls", "--json")
			return strings.Contains(listed, "stock-cancelled") && strings.Contains(listed, "stock-odd")
		}, patience, 100*time.Millisecond, "both maps are listed")
	})
}
