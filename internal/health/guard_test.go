package health

import (
	"context"
	"errors"
	"fmt"
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
	events   chan gpu.Event
	status   error
	recovery gpu.Action
	unknown  error

	mu    sync.Mutex
	sick  map[string]Probe
	tried map[string]int
}

func (m *machine) Watch(ctx context.Context, emit func(gpu.Event)) error {
	for {
		select {
		case e := <-m.events:
			emit(e)
		case <-ctx.Done():
			return nil
		}
	}
}
func (m *machine) Status(string) (gpu.Status, error) {
	return gpu.Status{}, m.status
}
func (m *machine) Recovery(string) (gpu.Action, error) { return m.recovery, m.unknown }

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
	m := &machine{events: make(chan gpu.Event), recovery: gpu.ActionNone, sick: map[string]Probe{}, tried: map[string]int{}}
	g := New(m, m.try, zaptest.NewLogger(t))
	g.Add(p, []config.Group{
		{Name: "GPU-a", Devices: []gpu.Device{{Kind: gpu.KindGPU, UUID: "GPU-a"}}},
		{Name: "MIG-b", Devices: []gpu.Device{{Kind: gpu.KindMIG, UUID: "MIG-b", Parent: "GPU-b"}}},
	})
	return g, m, p
}

func TestGuard_CordonsOnEventsThatAskForIt(t *testing.T) {
	g, m, p := testGuard(t)
	m.status = gpu.ErrLost // nothing comes back meanwhile
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { g.Run(ctx); close(done) }()
	m.events <- gpu.Event{UUID: "GPU-a", GPU: "GPU-a", Kind: gpu.EventXid, Xid: 31, Action: gpu.ActionRestart}
	m.events <- gpu.Event{UUID: "GPU-b", GPU: "GPU-b", Kind: gpu.EventXid, Xid: 79, Action: gpu.ActionReboot}
	require.Eventually(t, func() bool { return p.Cordoned("MIG-b") }, time.Minute, time.Millisecond)
	require.False(t, p.Cordoned("GPU-a"))
	cancel()
	<-done
}

func TestGuard_TellsThatAPoolHasNoHealthyDevice(t *testing.T) {
	g, m, p := testGuard(t)
	core, logs := observer.New(zap.WarnLevel)
	g.log = zap.New(core)
	m.set("GPU-a", notReady)
	told := func() int {
		return logs.FilterMessage("the pool has no healthy device here; maps wait for one, or for another worker, or go on in their next pool").Len()
	}
	require.NotEmpty(t, g.Examine(t.Context(), p, "GPU-a"))
	require.Zero(t, told())
	m.set("MIG-b", notReady)
	require.NotEmpty(t, g.Examine(t.Context(), p, "MIG-b"))
	require.Equal(t, 1, told())
}

func TestGuard_RestoresOnlyWhatWorks(t *testing.T) {
	for name, test := range map[string]struct {
		event    gpu.Action
		status   error
		recovery gpu.Action
		unknown  error
		probe    Probe
		restored bool
	}{
		"the driver says none":              {gpu.ActionDrain, nil, gpu.ActionNone, nil, Probe{OK: true}, true},
		"a probe fails":                     {gpu.ActionDrain, nil, gpu.ActionNone, nil, notReady, false},
		"there is no probe":                 {gpu.ActionDrain, nil, gpu.ActionNone, nil, Probe{Untried: "no Python"}, true},
		"it still asks for a reset":         {gpu.ActionDrain, nil, gpu.ActionReset, nil, Probe{OK: true}, false},
		"it does not answer":                {gpu.ActionDrain, gpu.ErrLost, gpu.ActionNone, nil, Probe{OK: true}, false},
		"it can not tell":                   {gpu.ActionDrain, nil, "", errors.ErrUnsupported, Probe{OK: true}, false},
		"it fails to tell":                  {gpu.ActionDrain, nil, "", errors.New("busy"), Probe{OK: true}, false},
		"it says none after asking a reset": {gpu.ActionReset, nil, gpu.ActionNone, nil, Probe{OK: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g, m, p := testGuard(t)
			g.observe(gpu.Event{UUID: "GPU-b", GPU: "GPU-b", Kind: gpu.EventXid, Xid: 48, Action: test.event})
			require.True(t, p.Cordoned("MIG-b"))
			m.status, m.recovery, m.unknown = test.status, test.recovery, test.unknown
			m.set("MIG-b", test.probe)
			g.recheck(t.Context())
			require.Equal(t, test.restored, !p.Cordoned("MIG-b"))
		})
	}
}

// Each cordon counts once, by what led to it.
func TestGuard_CountsCordonsByReason(t *testing.T) {
	silent := fmt.Errorf("%w for 3s", gpu.ErrSilent)
	for want, begin := range map[string]func(*Guard, *machine, *pool.Pool){
		"lost": func(g *Guard, m *machine, p *pool.Pool) {
			m.status = gpu.ErrLost
			g.Examine(t.Context(), p, "GPU-a")
		},
		"silent": func(g *Guard, m *machine, p *pool.Pool) { m.status = silent; g.Examine(t.Context(), p, "GPU-a") },
		"recovery": func(g *Guard, m *machine, p *pool.Pool) {
			m.recovery = gpu.ActionReset
			g.Examine(t.Context(), p, "GPU-a")
		},
		"probe": func(g *Guard, m *machine, p *pool.Pool) {
			m.set("GPU-a", notReady)
			g.Examine(t.Context(), p, "GPU-a")
		},
		"xid": func(g *Guard, _ *machine, _ *pool.Pool) {
			g.observe(gpu.Event{UUID: "GPU-a", Kind: gpu.EventXid, Xid: 95, Action: gpu.ActionReset})
		},
		"ecc": func(g *Guard, _ *machine, _ *pool.Pool) {
			g.observe(gpu.Event{UUID: "GPU-a", Kind: gpu.EventECC, Action: gpu.ActionDrain})
		},
	} {
		t.Run(want, func(t *testing.T) {
			require.Contains(t, Reasons(), want)
			g, m, p := testGuard(t)
			var counted []string
			g.Counted = func(_, reason string) { counted = append(counted, reason) }
			begin(g, m, p)
			begin(g, m, p)
			require.Equal(t, []string{want}, counted)
		})
	}
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
	_, err := p.Acquire(t.Context(), pool.Want{Group: "GPU-a"})
	require.ErrorContains(t, err, "others hold 22.1GiB of GPU-a")
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
	_, err := p.Acquire(t.Context(), pool.Want{Group: "GPU-a"})
	require.ErrorContains(t, err, "a probe of GPU-a found: cuInit failed: system not yet initialized (CUDA error 802)")
	require.ErrorContains(t, err, "nvidia-fabricmanager", "the next step")
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
	g.observe(gpu.Event{UUID: "GPU-a", GPU: "GPU-a", Kind: gpu.EventRestored})
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

// The probe of a device that is to come back may be what breaks it.
func TestGuard_AnEventDuringAProbeCounts(t *testing.T) {
	g, m, p := testGuard(t)
	g.observe(gpu.Event{UUID: "GPU-a", Kind: gpu.EventXid, Xid: 48, Action: gpu.ActionDrain})
	g.try = func(_ context.Context, uuid string) Probe {
		g.observe(gpu.Event{UUID: uuid, Kind: gpu.EventXid, Xid: 79, Action: gpu.ActionReboot})
		return Probe{OK: true}
	}
	g.recheck(t.Context())
	require.True(t, p.Cordoned("GPU-a"))
	g.try = m.try
	g.recheck(t.Context())
	require.False(t, p.Cordoned("GPU-a"))
}
