package health

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/pool"
	"github.com/gpumux/gpumux/workers/slot/slottest"
)

// fakeHealth is a driver that says what the test wants.
type fakeHealth struct {
	events   chan gpu.Event
	status   error
	recovery gpu.Action
	unknown  error
}

func (f *fakeHealth) Watch(ctx context.Context, emit func(gpu.Event)) error {
	for {
		select {
		case e := <-f.events:
			emit(e)
		case <-ctx.Done():
			return nil
		}
	}
}
func (f *fakeHealth) Status(string) (gpu.Status, error)   { return gpu.Status{}, f.status }
func (f *fakeHealth) Recovery(string) (gpu.Action, error) { return f.recovery, f.unknown }

func testGuard(t *testing.T) (*Guard, *fakeHealth, *pool.Pool) {
	p := pool.New("gpu", []*pool.Handle{{Slot: slottest.New(), Group: "GPU-a"}, {Slot: slottest.New(), Group: "MIG-b"}})
	h := &fakeHealth{events: make(chan gpu.Event), recovery: gpu.ActionNone}
	g := New(h, time.Hour, zaptest.NewLogger(t))
	g.Add(p, []config.Group{
		{Name: "GPU-a", Devices: []gpu.Device{{Kind: gpu.KindGPU, UUID: "GPU-a"}}},
		{Name: "MIG-b", Devices: []gpu.Device{{Kind: gpu.KindMIG, UUID: "MIG-b", Parent: "GPU-b"}}},
	})
	return g, h, p
}

func TestGuard_CordonsOnEventsThatAskForIt(t *testing.T) {
	g, h, p := testGuard(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { g.Run(ctx); close(done) }()
	h.events <- gpu.Event{UUID: "GPU-a", GPU: "GPU-a", Kind: gpu.EventXid, Xid: 31, Action: gpu.ActionRestart}
	h.events <- gpu.Event{UUID: "GPU-b", GPU: "GPU-b", Kind: gpu.EventXid, Xid: 79, Action: gpu.ActionReboot}
	require.Eventually(t, func() bool { return p.Cordoned("MIG-b") }, time.Minute, time.Millisecond)
	require.False(t, p.Cordoned("GPU-a"))
	cancel()
	<-done
}

func TestGuard_RestoresOnlyWhatWorks(t *testing.T) {
	for name, test := range map[string]struct {
		event    gpu.Action
		status   error
		recovery gpu.Action
		unknown  error
		restored bool
	}{
		"the driver says none":              {gpu.ActionDrain, nil, gpu.ActionNone, nil, true},
		"it still asks for a reset":         {gpu.ActionDrain, nil, gpu.ActionReset, nil, false},
		"it does not answer":                {gpu.ActionDrain, gpu.ErrLost, gpu.ActionNone, nil, false},
		"it can not tell, after a drain":    {gpu.ActionDrain, nil, "", errors.ErrUnsupported, true},
		"it can not tell, after a reset":    {gpu.ActionReset, nil, "", errors.ErrUnsupported, false},
		"it fails to tell":                  {gpu.ActionDrain, nil, "", errors.New("busy"), false},
		"it says none after asking a reset": {gpu.ActionReset, nil, gpu.ActionNone, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			g, h, p := testGuard(t)
			g.observe(gpu.Event{UUID: "GPU-b", GPU: "GPU-b", Kind: gpu.EventXid, Xid: 48, Action: test.event})
			require.True(t, p.Cordoned("MIG-b"))
			h.status, h.recovery, h.unknown = test.status, test.recovery, test.unknown
			g.recheck()
			require.Equal(t, test.restored, !p.Cordoned("MIG-b"))
		})
	}
}

func TestGuard_ACallThatMetALostDevice(t *testing.T) {
	g, _, p := testGuard(t)
	g.Lost(p, "GPU-a", "gone")
	require.True(t, p.Cordoned("GPU-a"))
	g.observe(gpu.Event{UUID: "GPU-a", GPU: "GPU-a", Kind: gpu.EventRestored})
	require.False(t, p.Cordoned("GPU-a"))

	cpu := pool.New("cpu", []*pool.Handle{{Slot: slottest.New(), Group: gpu.CPU}})
	g.Add(cpu, []config.Group{{Name: gpu.CPU, Devices: []gpu.Device{{Kind: gpu.KindCPU, UUID: gpu.CPU}}}})
	g.Lost(cpu, gpu.CPU, "a task said so")
	require.False(t, cpu.Cordoned(gpu.CPU), "there is no other processor to go to")
}
