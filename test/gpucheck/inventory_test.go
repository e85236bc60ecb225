package gpucheck

import (
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// smi asks nvidia-smi, a row per line; its word is what people compare ours with.
func (m *machine) smi(query, fields string) [][]string {
	m.t.Helper()
	if rehearsed() {
		rig.Because(m.t, rig.StandIn, "it has no nvidia-smi")
	}
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		rig.Because(m.t, rig.SMI, err)
	}
	out, err := exec.Command(path, "--query-"+query+"="+fields, "--format=csv,noheader,nounits").CombinedOutput()
	require.NoError(m.t, err, "%s", out)
	var rows [][]string
	for line := range strings.Lines(strings.TrimSpace(string(out))) {
		row := strings.Split(strings.TrimSpace(line), ",")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	return rows
}

// number reads a number of nvidia-smi; ok is false for [N/A] and its like.
func number(text string) (n float64, ok bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

func TestGPU_InventoryIsNvidiaSMIs(t *testing.T) {
	m := onGPU(t)
	rows := m.smi("gpu", "index,uuid,name,pci.bus_id,memory.total,driver_version,compute_cap")
	inventory, err := gpu.Open(t.Context(), gpu.Options{IgnoreVisible: true})
	require.NoError(t, err)
	defer inventory.Close()
	whole := slices.DeleteFunc(inventory.Devices(), func(d gpu.Device) bool { return d.Kind != gpu.KindGPU })
	require.Len(t, whole, len(rows))
	for i, d := range whole {
		row := rows[i]
		require.Equal(t, row[:4], []string{strconv.Itoa(d.Index), d.UUID, d.Name, d.PCI})
		if total, ok := number(row[4]); ok {
			require.InDelta(t, total*mib, float64(d.Memory), mib, "total memory of %s", d)
		}
		require.Equal(t, row[5:7], []string{d.Driver, d.ComputeCapability})
		m.figure("%s, %s, driver %s, CUDA %s", d.Name, gpumux.Size(d.Memory), d.Driver, d.CUDA)
	}
}

func TestGPU_StatusIsNvidiaSMIs(t *testing.T) {
	m := onGPU(t)
	if m.device.Kind != gpu.KindGPU {
		rig.Because(t, rig.SMI, "it lists no state of MIG instances")
	}
	status, err := m.inventory.Status(m.device.UUID)
	require.NoError(t, err)
	for _, row := range m.smi("gpu", "uuid,memory.free,temperature.gpu,power.draw,compute_mode") {
		if row[0] != m.device.UUID {
			continue
		}
		if free, ok := number(row[1]); ok {
			require.InDelta(t, free*mib, float64(status.Memory.Free), slack, "free memory")
		}
		if degrees, ok := number(row[2]); ok {
			require.InDelta(t, degrees, status.Temperature, 15)
		}
		if watts, ok := number(row[3]); ok {
			require.InDelta(t, watts, status.Power, max(100, watts), "watts")
		}
		require.Equal(t, strings.ToLower(row[4]), status.ComputeMode)
		require.Equal(t, status.Memory.Total, status.Memory.Free+status.Memory.Used)
		return
	}
	require.Fail(t, "nvidia-smi does not list the device", "%s", m.device)
}

// The memory of a process below another one is found through the census of the tree and
// the driver's list, and is gone when the process is.
func TestGPU_MemoryOfAProcessTree(t *testing.T) {
	m := onGPU(t)
	before := m.used()
	census := gpu.NewCensus()
	pid, stop := m.holder(gib)
	census.Follow(pid)
	require.NoError(t, census.Round())
	tree := census.Tree(pid).Resident
	held, err := m.inventory.ProcessMemory(m.device.UUID)
	require.NoError(t, err)
	var sum uint64
	found := 0
	for each := range tree {
		if bytes, ok := held[each]; ok {
			found++
			sum += bytes
		}
	}
	m.figure("the driver names the process by its number here: %t; it lists %v", found > 0, held)
	require.InDelta(t, gib, float64(m.used()-before), 2*gib, "the device's own count")
	require.GreaterOrEqual(t, m.used()-before, int64(gib))
	if found > 0 {
		require.Equal(t, 1, found, "processes %v of the tree %v", slices.Collect(maps.Keys(held)), slices.Collect(maps.Keys(tree)))
		require.GreaterOrEqual(t, sum, uint64(gib))
		require.Less(t, sum, uint64(3*gib))
		m.figure("a CUDA context takes %s by the driver's list and %s by the device's count", gpumux.Size(sum-gib), gpumux.Size(m.used()-before-gib))
	}
	stop()
	took, over := m.returns(before)
	m.figure("a process's memory is back %d ms after its end, %s left over", took.Milliseconds(), gpumux.Size(over))
	held, err = m.inventory.ProcessMemory(m.device.UUID)
	require.NoError(t, err)
	for each := range tree {
		require.NotContains(t, held, each)
	}
	if found == 0 {
		rig.Because(t, rig.Unlisted, "none is under the number that it has here, so no budget is watched")
	}
}

// What the driver lists is what nvidia-smi lists.
func TestGPU_ProcessesAreNvidiaSMIs(t *testing.T) {
	m := onGPU(t)
	if m.device.Kind != gpu.KindGPU {
		rig.Because(t, rig.SMI, "it lists processes by GPU, not by MIG instance")
	}
	m.holder(gib)
	held, err := m.inventory.ProcessMemory(m.device.UUID)
	require.NoError(t, err)
	both := 0
	for _, row := range m.smi("compute-apps", "pid,used_memory,gpu_uuid") {
		if len(row) < 3 || row[2] != m.device.UUID {
			continue
		}
		both++
		pid, err := strconv.Atoi(row[0])
		require.NoError(t, err)
		require.Contains(t, held, pid)
		if size, ok := number(row[1]); ok {
			require.InDelta(t, size*mib, float64(held[pid]), slack)
		}
	}
	require.Len(t, held, both, "processes: %v", held)
	m.figure("both list %d processes", both)
}

// How long one look at the processes takes decides how often a budget can be watched.
func TestGPU_CostOfALook(t *testing.T) {
	m := onGPU(t)
	m.holder(gib)
	var took []time.Duration
	for range 50 {
		began := time.Now()
		_, err := m.inventory.ProcessMemory(m.device.UUID)
		require.NoError(t, err)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	if began := time.Now(); m.device.Kind == gpu.KindGPU {
		_, err := m.inventory.Load(m.device.UUID)
		require.NoError(t, err)
		m.figure("a look at what the device does takes %d µs", time.Since(began).Microseconds())
	}
	m.figure("a look at the device's processes takes %d µs at the median, %d µs at most", took[25].Microseconds(), took[49].Microseconds())
}
