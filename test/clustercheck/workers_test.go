//go:build linux

package clustercheck

import (
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// silent is the log of this process's own clients of Temporal.
var silent = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

// Workers stopped one by one, and started again.
func TestWorkers_Rolled(t *testing.T) {
	inCluster(t)
	jobs := load(t, t.Name(), 250, 4)
	for _, p := range workers(t) {
		require.NoError(t, p.end(syscall.SIGTERM))
		require.NoError(t, p.start())
	}
	judge(t, "workers rolled", 0, "", jobs[:]...)
}

// A killed worker loses what ran, and what it had not stored.
func TestWorkers_Killed(t *testing.T) {
	inCluster(t)
	jobs := load(t, t.Name(), 250, 4)
	p := workers(t)[0]
	require.NoError(t, p.end(syscall.SIGKILL))
	require.NoError(t, p.start())
	judge(t, "worker killed", 20, "", jobs[:]...)
}

// Workers of a new version beside the old ones: a map stays with its version, a later one
// goes to the new version, and the old workers go when the first map is done.
func TestWorkers_NewVersion(t *testing.T) {
	inCluster(t)
	s := in("versions")
	current := func(build string) {
		t.Helper()
		set := func() bool {
			_, err := c.cli("worker", "deployment", "set-current-version", "--deployment-name", "gpus", "--build-id", build,
				"--namespace", s.namespace, "--yes")
			return err == nil
		}
		rig.Wait(t, set, patience, 100*time.Millisecond, "version %s is there", build)
	}
	begin := func(build string) *job {
		j := (&job{site: s, items: 100, seconds: 0.1, pool: "cpu"}).begin(t, "version-"+build)
		j.runs(t, 5)
		return j
	}
	older := s.worker("worker-v1", atWorkers+2, "v1")
	require.NoError(t, older.start())
	current("v1")
	first := begin("v1")
	newer := s.worker("worker-v2", atWorkers+3, "v2")
	require.NoError(t, newer.start())
	current("v2")
	second := begin("v2")
	<-first.ended
	require.NoError(t, older.end(syscall.SIGTERM))
	judge(t, "a new version of workers", 0, "", first, second)
	output, err := c.cli("worker", "deployment", "describe", "--name", "gpus", "--namespace", s.namespace)
	require.NoError(t, err)
	require.Contains(t, output, "v2")
	require.NoError(t, newer.end(syscall.SIGTERM))
}

// Two processes of history and of matching; one of each is killed under a map and stays
// away until it has ended.
func TestTwoOfEach(t *testing.T) {
	inCluster(t)
	for i, service := range []string{"history", "matching"} {
		second := c.temporal(service+"-2", service, []int{atHistory2, atMatching2}[i])
		require.NoError(t, second.start())
		defer func() { require.NoError(t, second.end(syscall.SIGTERM)) }()
	}
	for _, service := range []string{"history", "matching"} {
		t.Run(service, func(t *testing.T) {
			jobs := load(t, t.Name(), 120, 2)
			require.NoError(t, c.processes[service].end(syscall.SIGKILL))
			for _, j := range jobs {
				judge(t, fmt.Sprintf("one of two %s killed, items of %g s", service, j.seconds), -1, "", j)
			}
			require.NoError(t, c.processes[service].start())
		})
	}
}
