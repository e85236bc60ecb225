package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

func TestSick_OnlyWhereNobodyHasAHealthyDevice(t *testing.T) {
	sick := func(host string, devices ...string) contract.WorkerInfo {
		why := map[string]string{}
		for _, d := range devices {
			why[d] = "Xid 79"
		}
		return contract.WorkerInfo{Identity: host + "/1", Pools: []contract.PoolInfo{{Name: "gpu", Devices: []string{"GPU-a", "GPU-b"}, Cordoned: why}}}
	}
	all := []contract.WorkerInfo{sick("one", "GPU-a", "GPU-b"), sick("two", "GPU-a", "GPU-b")}
	require.Equal(t, []string{
		"device GPU-a of pool gpu at one/1 gets no work: Xid 79", "device GPU-b of pool gpu at one/1 gets no work: Xid 79",
		"device GPU-a of pool gpu at two/1 gets no work: Xid 79", "device GPU-b of pool gpu at two/1 gets no work: Xid 79",
	}, Sick(all, on("gpu")))
	require.Empty(t, Sick(append(all, sick("three", "GPU-b")), on("gpu")), "three has one")
	require.Empty(t, Sick(all, on("cpu")), "nobody serves it")
	staged := gpumux.MapInput{Stages: []gpumux.Stage{{Task: "decode", Ladder: []string{"cpu"}}, {Task: "embed"}, {Task: "pack"}}}
	all[0].Pools = append(all[0].Pools, contract.PoolInfo{Name: "cpu", Devices: []string{"CPU"}})
	require.Len(t, Sick(all, staged), 4, "each once, although another stage has a device")
}

func on(ladder ...string) gpumux.MapInput { return gpumux.MapInput{Ladder: ladder} }

// A slot is missing where there is no worker; what else a map says, and what is not
// known, stays.
func TestWaitingFor(t *testing.T) {
	served, unserved := gpumux.Rung{Name: "gpu", Workers: 1}, gpumux.Rung{Name: "gpu"}
	const slot = "a slot of pool gpu"
	require.Equal(t, "a worker for pool gpu", WaitingFor(slot, on("gpu"), []gpumux.Rung{unserved, unserved}))
	require.Equal(t, slot, WaitingFor(slot, on("gpu"), []gpumux.Rung{unserved, served}))
	require.Equal(t, slot, WaitingFor(slot, on("gpu"), nil))
	require.Equal(t, "resume", WaitingFor("resume", on("gpu"), []gpumux.Rung{unserved}))
	staged := gpumux.MapInput{Stages: []gpumux.Stage{{Task: "decode", Ladder: []string{"cpu"}}, {Task: "embed", Ladder: []string{"gpu", "big"}}}}
	cpu, big := gpumux.Rung{Name: "cpu", Workers: 1}, gpumux.Rung{Name: "big", Workers: 1}
	require.Equal(t, "a worker for pool gpu", WaitingFor(slot, staged, []gpumux.Rung{cpu, unserved}), "another stage has one")
	require.Equal(t, slot, WaitingFor(slot, staged, []gpumux.Rung{cpu, unserved, big}))
}
