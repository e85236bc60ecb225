//go:build cgo

package gpu

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// recoveryActions translates the driver's numbers.
var recoveryActions = map[nvml.DeviceGpuRecoveryAction]Action{
	nvml.GPU_RECOVERY_ACTION_NONE:            ActionNone,
	nvml.GPU_RECOVERY_ACTION_GPU_RESET:       ActionReset,
	nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:     ActionReboot,
	nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:       ActionDrainP2P,
	nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET: ActionReset,
}

// recovery asks the GPU, also for a MIG instance, which cannot be reset alone.
func (d *nvmlDriver) recovery(uuid string) (Action, error) {
	dev, err := d.device(uuid)
	if err != nil {
		return ActionNone, err
	}
	a, err := inquire(d, cmp.Or(dev.info.Parent, uuid), d.recoveryOf)
	if err != nil {
		return ActionNone, fmt.Errorf("gpu: recovery action of %s: %w", uuid, err)
	}
	return a, nil
}

func (d *nvmlDriver) recoveryOf(h nvml.Device) (Action, error) {
	if !d.has("nvmlDeviceGetFieldValues") {
		return ActionNone, d.failed(nvml.ERROR_FUNCTION_NOT_FOUND)
	}
	v := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	ret := h.GetFieldValues(v)
	if ret == nvml.SUCCESS {
		ret = nvml.Return(v[0].NvmlReturn)
	}
	if ret == nvml.ERROR_INVALID_ARGUMENT { // how older drivers refuse a field they do not know
		ret = nvml.ERROR_NOT_SUPPORTED
	}
	if ret != nvml.SUCCESS {
		return ActionNone, d.failed(ret)
	}
	n := nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(v[0].Value[:4]))
	if a, ok := recoveryActions[n]; ok {
		return a, nil
	}
	return ActionDrain, nil // newer than this table: not healthy in any case
}

// watch receives one event at a time. It polls every GPU at the start, every pollEvery,
// and when the events fail: a GPU that fell off the bus may send nothing.
func (d *nvmlDriver) watch(ctx context.Context, emit func(Event)) error {
	if err := d.acquire(); err != nil {
		return err
	}
	defer d.release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()

	w := &watch{nvmlDriver: d, emit: emit, events: newCallGate(), lost: map[string]bool{}, action: map[string]Action{}}
	w.subscribe()
	defer w.unsubscribe()
	w.pollAll(ctx)
	for ctx.Err() == nil {
		if w.set == nil || w.events.silent() > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(d.eventWait):
			}
		} else if !w.receive() {
			// The next regular poll subscribes again, so failing is never a busy loop.
			w.unsubscribe()
			w.pollAll(ctx)
		}
		if ctx.Err() == nil && time.Since(w.polled) >= d.pollEvery {
			w.pollAll(ctx)
			if w.set == nil {
				w.subscribe()
			}
		}
	}
	return nil
}

// watch is the state of one call of Watch; only its goroutine uses it.
type watch struct {
	*nvmlDriver
	emit   func(Event)
	events *callGate
	set    nvml.EventSet     // nil while events cannot be had
	lost   map[string]bool   // by UUID of the GPU
	action map[string]Action // the last recovery action by UUID of the GPU
	polled time.Time         // when every GPU was last polled
}

const wantedEvents = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError |
	nvml.EventTypeGpuUnavailableError | nvml.EventTypeGpuRecoveryAction

// subscribe registers every GPU that has events; polls go on in any case.
func (w *watch) subscribe() {
	if !w.hasAll("nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes") ||
		!w.has("nvmlEventSetWait_v2", "nvmlEventSetWait") {
		return
	}
	types := map[nvml.Device]uint64{}
	for _, g := range w.gpus {
		can, err := ask(w.nvmlDriver, g.callGate, w.patience, func() (uint64, error) {
			can, ret := g.handle.GetSupportedEventTypes()
			return can & wantedEvents, w.failed(ret)
		})
		if err == nil && can != 0 {
			types[g.handle] = can
		}
	}
	if len(types) > 0 {
		w.set, _ = ask(w.nvmlDriver, w.events, w.patience, func() (nvml.EventSet, error) { return w.register(types) })
	}
}

// register makes a set of the events of GPUs.
func (w *watch) register(types map[nvml.Device]uint64) (nvml.EventSet, error) {
	set, ret := w.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, w.failed(ret)
	}
	armed := false
	for handle, wanted := range types {
		ret = handle.RegisterEvents(wanted, set)
		armed = armed || ret == nvml.SUCCESS
	}
	if !armed {
		set.Free()
		return nil, w.failed(ret)
	}
	return set, nil
}

func (w *watch) unsubscribe() {
	set := w.set
	if set == nil {
		return
	}
	w.set = nil
	// One that the driver has not come back from is left to it.
	_, _ = ask(w.nvmlDriver, w.events, w.patience, func() (nvml.Return, error) { return set.Free(), nil })
}

// receive waits for the next event; false means that the set is of no more use.
func (w *watch) receive() bool {
	set, longest := w.set, uint32(w.eventWait.Milliseconds())
	data, err := ask(w.nvmlDriver, w.events, w.eventWait+w.patience, func() (nvml.EventData, error) {
		data, ret := set.Wait(longest)
		if ret == nvml.SUCCESS {
			return data, nil
		}
		return data, ret
	})
	if err != nil {
		return errors.Is(err, ErrSilent) || errors.Is(err, nvml.ERROR_TIMEOUT)
	}
	g, ok := w.source(data.Device)
	if !ok {
		return true
	}
	e := Event{UUID: g.info.UUID, GPU: g.info.UUID, Time: time.Now()}
	switch data.EventType {
	case nvml.EventTypeXidCriticalError:
		e.Kind, e.Xid, e.Action = EventXid, data.EventData, XidAction(data.EventData)
		e.UUID = w.instance(g.info.UUID, data)
		w.emit(e)
	case nvml.EventTypeDoubleBitEccError:
		e.Kind, e.Action = EventECC, ActionDrain
		w.emit(e)
	}
	w.poll(g) // the recovery action may have changed with it
	return true
}

// source finds an event's GPU, by handle first: a lost GPU does not tell its UUID.
func (w *watch) source(h nvml.Device) (nvmlDevice, bool) {
	i := slices.IndexFunc(w.gpus, func(g nvmlDevice) bool { return g.handle == h })
	if i < 0 && h != nil {
		uuid, ret := h.GetUUID()
		i = slices.IndexFunc(w.gpus, func(g nvmlDevice) bool { return ret == nvml.SUCCESS && g.info.UUID == uuid })
	}
	if i < 0 {
		return nvmlDevice{}, false
	}
	return w.gpus[i], true
}

// instance is the UUID of the only MIG instance an event can mean, else the GPU's.
func (w *watch) instance(gpu string, data nvml.EventData) string {
	if data.GpuInstanceId == noInstance {
		return gpu
	}
	found := gpu
	for _, p := range w.instances {
		if p.info.Parent != gpu || p.gi != data.GpuInstanceId {
			continue
		}
		if data.ComputeInstanceId != noInstance && p.ci != data.ComputeInstanceId {
			continue
		}
		if found != gpu {
			return gpu
		}
		found = p.info.UUID
	}
	return found
}

func (w *watch) pollAll(ctx context.Context) {
	for _, g := range w.gpus {
		if ctx.Err() == nil {
			w.poll(g)
		}
	}
	w.polled = time.Now()
}

// poll reports what changed on a GPU: lost, restored, another recovery action. A GPU that
// cannot tell its memory is lost, and so is one whose driver has been silent for long.
func (w *watch) poll(g nvmlDevice) {
	uuid := g.info.UUID
	e := Event{UUID: uuid, GPU: uuid, Time: time.Now()}
	type verdict struct {
		action Action
		err    error
	}
	told, err := ask(w.nvmlDriver, g.callGate, w.patience, func() (verdict, error) {
		_, err := w.memory(g.handle)
		action, recErr := w.recoveryOf(g.handle)
		return verdict{action, recErr}, err
	})
	action, recErr := told.action, told.err
	if errors.Is(err, ErrSilent) {
		if g.silent() < w.lostAfter {
			return
		}
		recErr = err
	}
	gone := err != nil && !errors.Is(err, errors.ErrUnsupported)
	if gone && (recErr != nil || action == ActionNone) {
		action = ActionDrain
	}
	if gone != w.lost[uuid] {
		w.lost[uuid] = gone
		e.Kind, e.Action = EventRestored, action
		if gone {
			e.Kind = EventLost
		}
		w.emit(e)
		if !gone {
			w.unsubscribe() // it may not have been registered, or no longer is
		}
	}
	if recErr != nil || gone {
		return
	}
	if before, ok := w.action[uuid]; action != before && (ok || action != ActionNone) {
		e.Kind, e.Action = EventRecovery, action
		w.emit(e)
	}
	w.action[uuid] = action
}
