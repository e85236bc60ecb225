package gpucheck

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// Of three items one fits its slot, one fits only the whole device, which the ladder
// gives it, and one fits nowhere.
func TestGPU_OutOfMemory(t *testing.T) {
	const slots = 3
	for framework, class := range map[string]string{
		"torch": "torch.OutOfMemoryError", "jax": "jax", "cupy": "cupy.cuda.memory.OutOfMemoryError",
	} {
		t.Run(framework, func(t *testing.T) {
			m := onGPU(t)
			m.needs(framework)
			if m.device.Memory < 20*gib {
				rig.Because(t, rig.Small, "it has ", gpumux.Size(m.device.Memory), ", and three slots of 6 GiB take 18 GiB")
			}
			before := m.used()
			huge := int64(m.device.Memory) * 4 / gib * gib
			results := m.mapped(1, "hold", []object{
				{"framework": framework, "bytes": gib},
				{"framework": framework, "bytes": 8 * gib},
				{"framework": framework, "bytes": huge},
				{"framework": framework, "bytes": gib},
			}, "--slots", strconv.Itoa(slots), "--memory", "6GiB")
			type held struct{ Memory int64 }
			require.Equal(t, int64(6*gib), value[held](t, results[0]).Memory)
			require.Equal(t, int64(slots*6*gib), value[held](t, results[1]).Memory, "the item that passed its slot had the whole device")
			value[held](t, results[3])

			fault := results[2].Fault
			require.NotNil(t, fault)
			require.Equal(t, gpumux.FaultDeviceOOM, fault.Kind, fault.Error())
			require.Contains(t, fault.Class, class)
			require.InEpsilon(t, huge, fault.Requested, 0.02, "the size that was asked for: %s", fault.Message)
			require.Equal(t, m.device.UUID, fault.Device)
			require.NotEmpty(t, fault.Hint)
			m.figure("%s: %s, asked for %s, after %d tries", framework, fault.Kind, gpumux.Size(fault.Requested), fault.Attempts)
			m.returns(before)
		})
	}
}

// The fault of an item that ran out of memory says which of its lines held what.
func TestGPU_OOMExplained(t *testing.T) {
	t.Run("torch", func(t *testing.T) {
		m := onGPU(t)
		m.needs("torch")
		items := []object{{"framework": "torch", "bytes": gib / 2, "more": int64(m.device.Memory) * 4 / gib * gib}}
		for _, flags := range [][]string{nil, {"--explain-oom"}} {
			fault := m.mapped(1, "exhaust", items, append(flags, "--memory", "6GiB")...)[0].Fault
			require.NotNil(t, fault)
			require.Equal(t, gpumux.FaultDeviceOOM, fault.Kind, fault.Error())
			if flags == nil {
				require.Contains(t, fault.Traceback, "cuda:0 held 1.0GiB; --explain-oom")
				continue
			}
			require.Regexp(t, `cuda:0 held 1\.0GiB, allocated by\n +1\.0GiB  2 × \S+tasks\.py:\d+ allocate, from \S+tasks\.py:\d+ exhaust`, fault.Traceback)
		}
	})
}

// A ruined CUDA context costs the item that ruined it and no other: its neighbours'
// processes go on, and no other item runs twice.
func TestGPU_RuinedContext(t *testing.T) {
	for framework, message := range map[string]string{"cupy": "illegal", "torch": "device-side assert"} {
		t.Run(framework, func(t *testing.T) {
			m := onGPU(t)
			m.needs(framework)
			before := m.used()
			const count, bad, slots = 60, 20, 3
			log := filepath.Join(m.dir, "ran")
			items := make([]object, count)
			for i := range items {
				items[i] = object{"framework": framework, "number": i, "bad": bad, "log": log}
			}
			results := m.mapped(1, "ruin", items, "--slots", strconv.Itoa(slots), "--memory", "3GiB", "--option", "chunk=6")
			fault := results[bad].Fault
			require.NotNil(t, fault, "the context was not ruined: %s", results[bad].Value)
			require.Equal(t, gpumux.FaultCrash, fault.Kind, fault.Error())
			require.Contains(t, strings.ToLower(fault.Message), message)
			require.Equal(t, m.device.UUID, fault.Device)
			require.NotEmpty(t, fault.Hint)
			for i, r := range results {
				if i != bad {
					value[int](t, r)
				}
			}
			times, tries := map[int]int{}, map[string]bool{}
			text, err := os.ReadFile(log)
			require.NoError(t, err)
			for line := range strings.Lines(string(text)) {
				var i int
				number, pid, _ := strings.Cut(strings.TrimSpace(line), " ")
				i, err = strconv.Atoi(number)
				require.NoError(t, err)
				times[i]++
				tries[pid] = true
			}
			for i := range count {
				if i != bad {
					require.Equal(t, 1, times[i], "how often item %d ran", i)
				}
			}
			require.LessOrEqual(t, len(tries), slots+times[bad]*2, "processes: one per slot, and new ones for those that were ruined")
			m.figure("%s: %d items in %d slots, the ruined context cost %d processes and no other item", framework, count, slots, times[bad])
			m.returns(before)
		})
	}
}
