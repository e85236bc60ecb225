//go:build cgo

package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/stretchr/testify/require"
)

// recoverable gives a device a recovery action that the test can change.
func recoverable(d *dgxa100.Device) *atomic.Uint32 {
	var n atomic.Uint32
	d.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
		if v[0].FieldId != 230 {
			return nvml.ERROR_INVALID_ARGUMENT
		}
		binary.NativeEndian.PutUint32(v[0].Value[:4], n.Load())
		v[0].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
		return nvml.SUCCESS
	}
	return &n
}

func TestRecovery_Actions(t *testing.T) {
	s := dgx()
	inv := open(t, s)
	d := device(s, 0)
	_, err := inv.Recovery(d.UUID)
	require.ErrorIs(t, err, errors.ErrUnsupported, "the driver lacks the function")

	split(s, "nvmlDeviceGetFieldValues")
	inv = open(t, s)
	n := recoverable(d)
	for i, want := range []Action{ActionNone, ActionReset, ActionReboot, ActionDrainP2P, ActionReset, ActionDrain} {
		n.Store(uint32(i))
		got, err := inv.Recovery(d.UUID)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	recoverable(device(s, 1)).Store(1)
	got, err := inv.Recovery("MIG-bbb")
	require.NoError(t, err)
	require.Equal(t, ActionReset, got, "an instance needs what its GPU needs")

	d.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
		v[0].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		return nvml.SUCCESS
	}
	_, err = inv.Recovery(d.UUID)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = inv.Recovery(CPU)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

var eventSymbols = []string{
	"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents",
	"nvmlDeviceGetSupportedEventTypes", "nvmlDeviceGetFieldValues",
}

type answer struct {
	data nvml.EventData
	ret  nvml.Return
}

// scripted lets the library answer waits from a channel; with nothing there it times out.
func scripted(s *dgxa100.Server) (answers chan answer, sets, freed *atomic.Int32) {
	answers, sets, freed = make(chan answer), &atomic.Int32{}, &atomic.Int32{}
	for _, d := range s.Devices {
		dev := d.(*dgxa100.Device)
		dev.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 0xFFFF, nvml.SUCCESS }
		dev.RegisterEventsFunc = func(types uint64, _ nvml.EventSet) nvml.Return {
			if types&^uint64(wantedEvents) != 0 {
				return nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.SUCCESS
		}
		recoverable(dev)
	}
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		sets.Add(1)
		return &mock.EventSet{
			WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
				select {
				case a := <-answers:
					return a.data, a.ret
				case <-time.After(time.Duration(ms) * time.Millisecond):
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			},
			FreeFunc: func() nvml.Return { freed.Add(1); return nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	return answers, sets, freed
}

// watching runs Watch until the test ends or stop is called, which waits for it.
func watching(t *testing.T, inv *Inventory) (events chan Event, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events = make(chan Event, 100)
	done := make(chan error, 1)
	go func() { done <- inv.Watch(ctx, func(e Event) { e.Time = time.Time{}; events <- e }) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Error("Watch did not end with its context")
		}
	}
	t.Cleanup(stop)
	return events, stop
}

func next(t *testing.T, events chan Event) Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(time.Minute):
		t.Fatal("no event came")
		return Event{}
	}
}

func TestWatch_XidAndECC(t *testing.T) {
	s := dgx()
	split(s, eventSymbols...)
	answers, sets, freed := scripted(s)
	events, stop := watching(t, open(t, s))
	u0, u1 := device(s, 0).UUID, device(s, 1).UUID
	xid := func(gpu int, n uint64, gi, ci uint32) answer {
		return answer{nvml.EventData{Device: s.Devices[gpu], EventType: nvml.EventTypeXidCriticalError, EventData: n, GpuInstanceId: gi, ComputeInstanceId: ci}, nvml.SUCCESS}
	}
	for _, c := range []struct {
		in   answer
		want Event
	}{
		{xid(0, 79, noInstance, noInstance), Event{UUID: u0, GPU: u0, Kind: EventXid, Xid: 79, Action: ActionReboot}},
		{xid(1, 31, 9, 0), Event{UUID: "MIG-bbb", GPU: u1, Kind: EventXid, Xid: 31, Action: ActionRestart}},
		{xid(1, 31, 9, noInstance), Event{UUID: "MIG-bbb", GPU: u1, Kind: EventXid, Xid: 31, Action: ActionRestart}},
		{xid(1, 31, 5, 0), Event{UUID: u1, GPU: u1, Kind: EventXid, Xid: 31, Action: ActionRestart}},
		{xid(0, 43, noInstance, noInstance), Event{UUID: u0, GPU: u0, Kind: EventXid, Xid: 43, Action: ActionNone}},
		{xid(0, 4711, noInstance, noInstance), Event{UUID: u0, GPU: u0, Kind: EventXid, Xid: 4711, Action: ActionDrain}},
		{answer{nvml.EventData{Device: s.Devices[0], EventType: nvml.EventTypeDoubleBitEccError}, nvml.SUCCESS}, Event{UUID: u0, GPU: u0, Kind: EventECC, Action: ActionDrain}},
	} {
		answers <- c.in
		require.Equal(t, c.want, next(t, events))
	}
	stop()
	require.Equal(t, sets.Load(), freed.Load())
	require.Empty(t, events)
}

func TestWatch_LostAndRestored(t *testing.T) {
	s := dgx()
	symbols(s, with(eventSymbols...)...)
	answers, sets, freed := scripted(s)
	var lost atomic.Bool
	d := device(s, 2)
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		if lost.Load() {
			return nvml.Memory{}, nvml.ERROR_UNKNOWN
		}
		return nvml.Memory{Total: gib, Free: gib}, nvml.SUCCESS
	}
	events, stop := watching(t, open(t, s))
	lost.Store(true)
	answers <- answer{ret: nvml.ERROR_GPU_IS_LOST} // says not which
	require.Equal(t, Event{UUID: d.UUID, GPU: d.UUID, Kind: EventLost, Action: ActionDrain}, next(t, events))
	lost.Store(false)
	require.Equal(t, Event{UUID: d.UUID, GPU: d.UUID, Kind: EventRestored, Action: ActionNone}, next(t, events))
	require.Eventually(t, func() bool { return sets.Load() >= 2 }, time.Minute, time.Millisecond, "the events must be armed again")
	stop()
	require.Equal(t, sets.Load(), freed.Load())
	require.Empty(t, events)
}

func TestWatch_RecoveryActionWithoutEvents(t *testing.T) {
	s := dgx()
	symbols(s, with("nvmlDeviceGetFieldValues")...)
	for _, d := range s.Devices {
		recoverable(d.(*dgxa100.Device))
	}
	d := device(s, 4)
	n := recoverable(d)
	n.Store(2)
	events, _ := watching(t, open(t, s))
	want := Event{UUID: d.UUID, GPU: d.UUID, Kind: EventRecovery, Action: ActionReboot}
	require.Equal(t, want, next(t, events), "what was wrong at the start is reported")
	n.Store(0)
	want.Action = ActionNone
	require.Equal(t, want, next(t, events))
}

func TestClose_EndsWatchBeforeShutdown(t *testing.T) {
	s := dgx()
	symbols(s, with(eventSymbols...)...)
	_, sets, freed := scripted(s)
	shutdowns := 0
	s.ShutdownFunc = func() nvml.Return {
		shutdowns++
		if sets.Load() != freed.Load() {
			t.Error("shut down with an event set in use")
		}
		return nvml.SUCCESS
	}
	inv := open(t, s)
	done := make(chan error, 1)
	go func() { done <- inv.Watch(context.Background(), func(Event) {}) }()
	require.Eventually(t, func() bool { return sets.Load() == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, inv.Close())
	require.NoError(t, <-done)
	require.NoError(t, inv.Close())
	require.Equal(t, 1, shutdowns)
	_, err := inv.Status(device(s, 0).UUID)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, inv.Watch(context.Background(), nil), ErrClosed)
}

func TestWatch_AsksForRecoveryAfterAnEvent(t *testing.T) {
	s := dgx()
	symbols(s, with(eventSymbols...)...)
	answers, _, _ := scripted(s)
	d := device(s, 0)
	n := recoverable(d)
	inv, driver := openFast(t, s)
	driver.pollEvery = time.Hour
	events, _ := watching(t, inv)
	answers <- answer{ret: nvml.ERROR_TIMEOUT} // the look at the start is over
	n.Store(1)
	answers <- answer{nvml.EventData{Device: d, EventType: nvml.EventTypeXidCriticalError, EventData: 95, GpuInstanceId: noInstance}, nvml.SUCCESS}
	require.Equal(t, EventXid, next(t, events).Kind)
	require.Equal(t, Event{UUID: d.UUID, GPU: d.UUID, Kind: EventRecovery, Action: ActionReset}, next(t, events))
}
