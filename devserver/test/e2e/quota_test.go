package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workflows"
)

// quotasOf are the quotas of the only worker's pool by key; none while it is silent.
func quotasOf(t *testing.T, s *starter.Starter) map[string]contract.QuotaInfo {
	t.Helper()
	quotas := map[string]contract.QuotaInfo{}
	all, _ := s.Fleet().Workers(t.Context())
	for _, w := range all {
		if w.Offer != nil {
			for _, q := range w.Offer.Pools[0].Quotas {
				quotas[q.Key] = q
			}
		}
	}
	return quotas
}

// A team over its quota waits and says so, while others have the rest of the pool.
func TestQuota_ATeamHasItsSlots(t *testing.T) {
	s := newStage(t)
	s.config.Pools[0].Quotas = map[string]config.Quota{"team-a": {Slots: 2}}
	s.work()
	m := s.over("gate", 12)
	m.Input.FairnessKey, m.Input.Chunk, m.Input.Window = "team-a", 1, 12
	h := s.start(m)
	host, err := os.Hostname()
	require.NoError(t, err)
	waits := "waits for the quota of team-a: 2 slots of pool cpu at " + host
	var d *starter.Detail
	s.until("chunks wait for the quota", func() bool {
		d, err = s.Show(t.Context(), h.ID)
		return err == nil && len(d.Running) == 2 && len(d.Waits) == 1
	})
	require.Equal(t, []string{waits}, d.Waits)
	retries, err := h.Retries(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, waits, "waits for "+retries.Quota)
	s.until("the list says so", func() bool {
		maps, err := s.List(t.Context(), starter.ListOptions{Counts: true})
		return err == nil && len(maps) == 1 && "waits for "+maps[0].Quota == waits
	})
	s.until("the worker shows its quota", func() bool {
		return quotasOf(t, s.Starter)["team-a"] == contract.QuotaInfo{Key: "team-a", Slots: 2, Busy: 2, Waits: true}
	})

	other := s.start(s.over("double", 200))
	_, err = s.wait(other)
	require.NoError(t, err, "nothing of team-a's is in its way")

	s.allow("open")
	summary, err := s.wait(h)
	require.NoError(t, err)
	require.EqualValues(t, 12, summary.Succeeded)
	require.Len(t, s.calls(), 212, "none ran twice")
}

// A lease counts against the quota of its workflow's fairness key.
func TestQuota_LeasesCount(t *testing.T) {
	l := newLeases(t)
	c := onCPU(cpuPool{Pool: "cpu", Slots: 4, TasksDir: l.dir, Dir: l.dir, Store: l.store})
	c.Pools[0].Quotas = map[string]config.Quota{"*": {Slots: 1}}
	l.serve(c)
	l.register("held", func(ctx workflow.Context, call string, arg any) error {
		return workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{"cpu"}}, func(ctx workflow.Context, s *workflows.Slot) error {
			_, err := workflows.Call[any](ctx, s, call, arg)
			return err
		})
	})
	l.begin()
	start := func(id, key, call string, arg any) client.WorkflowRun {
		run, err := l.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
			ID: id, TaskQueue: "service", Priority: temporal.Priority{FairnessKey: key}}, "held", call, arg)
		require.NoError(t, err)
		return run
	}
	gate := l.dir + "/gate"
	first := start("first", "team-a", "model:gate", gate)
	st := &starter.Starter{Client: l.client, Namespace: l.namespace}
	has := func(busy int, waits bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			q := quotasOf(t, st)["team-a"]
			return q.Busy == busy && q.Waits == waits
		}, time.Minute, 50*time.Millisecond)
	}
	has(1, false)
	second := start("second", "team-a", "model:pid", 1)
	require.NoError(t, start("other", "team-b", "model:pid", 1).Get(t.Context(), nil), "another key has its own")
	has(1, true)
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	require.NoError(t, first.Get(t.Context(), nil))
	require.NoError(t, second.Get(t.Context(), nil))
}
