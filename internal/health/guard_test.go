package health

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// machine is a driver, and devices, that say what the test wants.
type machine struct {
	status error

	mu    sync.Mutex
	sick  map[string]Probe
	tried map[string]int
}

func (m *machine) statusOf(string) (gpu.Status, error) { return gpu.Status{}, m.status }

func (m *machine) try(_ context.Context, uuid string) Probe {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tried[uuid]++
	if p, ok := m.sick[uuid]; ok {
		return p
	}
	return Probe{Device: uuid, OK: true}
}

// set changes what a probe of a device finds.
func (m *machine) set(uuid string, p Probe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sick[uuid] = p
}

var notReady = Probe{Code: 802, Call: "cuInit", Text: "system not yet initialized"}

func testGuard(t *testing.T) (*Guard, *machine, *pool.Pool) {
	p := pool.NewLedger().New("gpu", []*pool.Seat{{Slot: gputest.NewSlot(), Group: "GPU-a"}, {Slot: gputest.NewSlot(), Group: "MIG-b"}})
	m := &machine{sick: map[string]Probe{}, tried: map[string]int{}}
	g := New(m.statusOf, m.try, zaptest.NewLogger(t))
	g.Add(p, []config.Group{
		{Name: "GPU-a", Devices: []gpu.Device{{Kind: gpu.KindGPU, UUID: "GPU-a"}}},
		{Name: "MIG-b", Devices: []gpu.Device{{Kind: gpu.KindMIG, UUID: "MIG-b", Parent: "GPU-b"}}},
	})
	return g, m, p
}

func TestGuard_TellsThatAPoolHasNoHealthyDevice(t *testing.T) {
	g, m, p := testGuard(t)
	core, logs := observer.New(zap.WarnLevel)
	g.log = zap.New(core)
	m.set("GPU-a", notReady)
	warnings := func() int {
		return logs.FilterMessage("the pool has no healthy device here; maps wait for one, or for another worker, or go on in their next pool").Len()
	}
	require.NotEmpty(t, g.Examine(t.Context(), p, "GPU-a"))
	require.Zero(t, warnings())
	m.set("MIG-b", notReady)
	require.NotEmpty(t, g.Examine(t.Context(), p, "MIG-b"))
	require.Equal(t, 1, warnings())
}

// A cordoned device comes back when a probe passes, and is not probed while the driver
// does not answer about it.
func TestGuard_RestoresOnlyWhatWorks(t *testing.T) {
	for name, test := range map[string]struct {
		status   error
		probe    Probe
		restored bool
	}{
		"a probe passes":     {nil, Probe{OK: true}, true},
		"a probe fails":      {nil, notReady, false},
		"there is no probe":  {nil, Probe{Untried: "no Python"}, true},
		"it is lost":         {gpu.ErrLost, Probe{OK: true}, false},
		"the driver is mute": {gpu.ErrSilent, Probe{OK: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, m, p := testGuard(t)
			m.set("MIG-b", notReady)
			require.NotEmpty(t, g.Examine(t.Context(), p, "MIG-b"))
			tried := m.tried["MIG-b"]
			m.status = test.status
			m.set("MIG-b", test.probe)
			g.recheck(t.Context())
			require.Equal(t, test.restored, !p.Cordoned("MIG-b"))
			require.Equal(t, test.status == nil, m.tried["MIG-b"] > tried)
		})
	}
}

// A device is counted once for the time that it is cordoned.
func TestGuard_CountsCordons(t *testing.T) {
	g, m, p := testGuard(t)
	var counted []string
	g.Counted = func(_, reason string) { counted = append(counted, reason) }
	m.set("GPU-a", notReady)
	for range 2 {
		require.NotEmpty(t, g.Examine(t.Context(), p, "GPU-a"))
	}
	require.Equal(t, []string{"probe"}, counted)
	require.Equal(t, []string{"probe", "full"}, Reasons())
}

// A device that others fill takes no work until they leave room for a slot.
func TestGuard_ADeviceThatOthersFill(t *testing.T) {
	g, m, p := testGuard(t)
	var counted []string
	g.Counted = func(_, reason string) { counted = append(counted, reason) }
	text, full := g.Crowd(p, "GPU-a")
	require.Empty(t, text)
	require.False(t, full)
	filled := true
	g.Others = func(pool string, group config.Group) (string, bool) {
		require.Equal(t, "gpu", pool)
		return "others hold 22.1GiB of " + group.Name, filled
	}
	g.Begin(t.Context())
	require.False(t, p.Cordoned("GPU-a"), "a budget that does not fit may never be needed")
	text, full = g.Crowd(p, "GPU-a")
	require.Equal(t, "others hold 22.1GiB of GPU-a", text)
	require.True(t, full)
	require.True(t, p.Cordoned("GPU-a"))
	require.False(t, p.Cordoned("MIG-b"))
	require.Equal(t, []string{"full"}, counted)
	require.Equal(t, "others hold 22.1GiB of GPU-a", p.Cordons()["GPU-a"])
	tried := m.tried["GPU-a"]
	g.recheck(t.Context())
	require.True(t, p.Cordoned("GPU-a"))
	require.Equal(t, tried, m.tried["GPU-a"], "no probe takes of what is left")
	filled = false
	g.recheck(t.Context())
	require.False(t, p.Cordoned("GPU-a"))
	text, full = g.Crowd(p, "GPU-a")
	require.NotEmpty(t, text)
	require.False(t, full)
	require.False(t, p.Cordoned("GPU-a"))
}

func TestGuard_SickDevicesGetNothingFromTheStart(t *testing.T) {
	g, m, p := testGuard(t)
	m.set("GPU-a", notReady)
	var counted []string
	g.Counted = func(pool, reason string) { counted = append(counted, pool+" "+reason) }
	g.Begin(t.Context())
	require.True(t, p.Cordoned("GPU-a"))
	require.False(t, p.Cordoned("MIG-b"))
	require.Equal(t, []string{"gpu probe"}, counted)
	require.Contains(t, p.Cordons()["GPU-a"], "a probe of GPU-a found: cuInit failed: system not yet initialized (CUDA error 802)")
	require.Contains(t, p.Cordons()["GPU-a"], "nvidia-fabricmanager", "the next step")
	m.set("GPU-a", Probe{OK: true})
	g.recheck(t.Context())
	require.False(t, p.Cordoned("GPU-a"))
}

func TestGuard_ExaminesADeviceUnderAFault(t *testing.T) {
	g, m, p := testGuard(t)
	idle := gputest.NewSlot()
	idle.Load("t", slot.Ready)
	both := pool.NewLedger().New("both", []*pool.Seat{{Slot: idle, Group: "GPU-a,GPU-c"}})
	g.Add(both, []config.Group{{Name: "GPU-a,GPU-c", Devices: []gpu.Device{{Kind: gpu.KindGPU, UUID: "GPU-a"}, {Kind: gpu.KindGPU, UUID: "GPU-c"}}}})
	require.Empty(t, g.Examine(t.Context(), p, "GPU-a"))
	require.False(t, p.Cordoned("GPU-a"), "it works")

	m.set("GPU-a", notReady)
	require.Contains(t, g.Examine(t.Context(), p, "GPU-a"), "system not yet initialized")
	require.True(t, p.Cordoned("GPU-a"))
	require.True(t, both.Cordoned("GPU-a,GPU-c"), "in every pool")
	require.Eventually(t, func() bool { return idle.State() == slot.Vacant }, time.Minute, time.Millisecond, "idle processes let go of it")

	m.set("GPU-a", Probe{OK: true})
	g.recheck(t.Context())
	require.False(t, p.Cordoned("GPU-a"))

	cpu := pool.NewLedger().New("cpu", []*pool.Seat{{Slot: gputest.NewSlot(), Group: gpu.CPU}})
	g.Add(cpu, []config.Group{{Name: gpu.CPU, Devices: []gpu.Device{{Kind: gpu.KindCPU, UUID: gpu.CPU}}}})
	require.Empty(t, g.Examine(t.Context(), cpu, gpu.CPU), "there is no other processor to go to")
	require.Zero(t, m.tried[gpu.CPU])
}

// A probe takes a second and a context, and sixteen slots may fail at the same moment.
func TestGuard_OneProbeAtATime(t *testing.T) {
	g, _, p := testGuard(t)
	synctest.Test(t, func(t *testing.T) {
		leave, tries := make(chan struct{}), 0
		g.try = func(context.Context, string) Probe {
			tries++
			<-leave
			return notReady
		}
		found := make(chan string)
		for range 16 {
			go func() { found <- g.Examine(t.Context(), p, "GPU-a") }()
		}
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.Empty(t, g.Examine(gone, p, "GPU-a"), "a call that has ended waits for nothing")
		close(leave)
		for range 16 {
			require.NotEmpty(t, <-found)
		}
		require.Equal(t, 1, tries)
	})
}
