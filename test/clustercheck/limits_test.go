//go:build linux

package clustercheck

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The server's own limits of a pool's queue, for all chunks of it and for each fairness
// key, hold back a map whose chunks would be faster.
func TestLimits(t *testing.T) {
	inCluster(t)
	s := in("limits")
	host := s.worker("worker-limits", atWorkers+12, "")
	require.NoError(t, host.start())
	defer func() { require.NoError(t, host.end(syscall.SIGTERM)) }()
	set := func(words ...string) {
		t.Helper()
		_, err := c.cli(append([]string{"task-queue", "config", "set", "--namespace", s.namespace, "--task-queue", "gpumux.cpu",
			"--task-queue-type", "activity"}, words...)...)
		require.NoError(t, err)
	}
	const items = 60
	begin := func(id string, args ...string) *job {
		return (&job{site: s, items: items, pool: "cpu", args: append(args, "--option", "chunk=1")}).begin(t, id)
	}
	took := func(part string, jobs ...*job) time.Duration {
		t.Helper()
		judge(t, part, 0, "", jobs...)
		return report[len(report)-1].took
	}
	free := took("60 chunks, no limit", begin("limit-none"))

	set("--queue-rps-limit", "2")
	limited := took("60 chunks, 2 a second in the queue", begin("limit-queue"))
	require.Greater(t, limited, max(free, 25*time.Second))

	set("--queue-rps-limit", "default", "--fairness-key-rps-limit-default", "2")
	one := begin("limit-one", "--option", "fairnessKey=one")
	double := begin("limit-double", "--option", "fairnessKey=double", "--option", "fairnessWeight=2")
	both := took("2 maps of 60 chunks, 2 a second for each key", one, double)
	require.Greater(t, both, max(free, 25*time.Second))
	require.Less(t, double.took, one.took, "the limit grows with the weight")
	record(t, row{part: "limits of a queue", took: both, note: fmt.Sprintf("weight 1 %.1f s, weight 2 %.1f s", one.took.Seconds(), double.took.Seconds())})
}
