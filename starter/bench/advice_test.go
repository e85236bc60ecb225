package bench

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

// rates is a report of one workload from the rates of its ways.
func rates(workload string, byWay map[Way]float64) *Report {
	r := &Report{Slots: 4}
	for way, rate := range byWay {
		slots := 4
		if way == Sequential {
			slots = 1
		}
		r.Rows = append(r.Rows, Row{Workload: workload, Way: way, Slots: slots, Rate: rate})
	}
	return r
}

func TestAdvise_WayFromTheRates(t *testing.T) {
	for _, c := range []struct {
		name string
		r    *Report
		want string
	}{
		{"Saturated", rates("heavy", map[Way]float64{Persistent: 10.2, Sequential: 10}), "heavy items: sequential; 4 slots do only 1.02× of what one does"},
		{"SlowerTogether", rates("heavy", map[Way]float64{Persistent: 7, Sequential: 10}), "heavy items: sequential; 4 slots do only 0.70× of what one does"},
		{"Shared", rates("medium", map[Way]float64{Persistent: 31, Sequential: 10}), "medium items: shared; 4 slots do 3.10× of what one does"},
		{"CPU", rates("light", map[Way]float64{Persistent: 10, Sequential: 5, OnCPU: 20}), "light items: the CPU; it does 2.00× of what the GPU does"},
		{"CPUIsSlower", rates("light", map[Way]float64{Persistent: 10, Sequential: 5, OnCPU: 9}), "light items: shared; 4 slots do 2.00× of what one does"},
		{"OneSlotOnly", rates("medium", map[Way]float64{Persistent: 10}), "medium items: 10.0 per second with one slot; give --slots to see whether sharing helps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.r.advise()
			require.Equal(t, []string{c.want}, c.r.Advice)
		})
	}
}

func TestAdvise_Slots(t *testing.T) {
	for want, steps := range map[string][]Step{
		"slots: 2; 4 slots do not bring 5% more throughput of medium items":                                     {{1, 10}, {2, 19}, {4, 19}},
		"slots: 4, the most that were tried; throughput of medium items still grew, so try more with --slots 8": {{1, 10}, {2, 19}, {4, 30}},
		"slots: 1 is all that was measured; give --slots to try more":                                           {{1, 10}},
	} {
		r := &Report{Sweep: steps}
		r.advise()
		require.Equal(t, []string{want}, r.Advice)
	}
}

func TestAdvise_Memory(t *testing.T) {
	r := &Report{Slots: 2, Rows: []Row{{Workload: "oom", Way: Persistent, Slots: 2, Items: 15,
		Faults: map[gpumux.Kind]int64{gpumux.Budget: 2, gpumux.DeviceOOM: 1}}}}
	r.advise()
	require.Equal(t, []string{"oom items: an item over its budget costs itself (2 budget, 1 device_oom, the other 12 finished), never its neighbours"}, r.Advice)
	r = &Report{Slots: 2, Rows: []Row{{Workload: "oom", Way: Persistent, Slots: 2, Items: 15}}}
	r.advise()
	require.Contains(t, r.Advice[0], "none failed, so nothing keeps a task within its memory budget here")
}

func TestAdvise_Costs(t *testing.T) {
	r := sampleReport()
	r.Advice = nil
	r.advise()
	text := strings.Join(r.Advice, "\n")
	require.Contains(t, text, "a process per item costs 180ms")
	require.Contains(t, text, "gpumux takes 50µs per item; items shorter than 1ms lose more than 5% to it")
	require.Contains(t, text, "a map takes 500ms beside its items")
}
