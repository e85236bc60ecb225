//go:build cgo

package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
	dev, err := d.enter(uuid)
	if err != nil {
		return ActionNone, err
	}
	defer d.exit()
	for _, g := range d.gpus {
		if g.info.UUID == dev.info.Parent {
			dev = g
		}
	}
	a, err := d.recoveryOf(dev.handle)
	if err != nil {
		return a, fmt.Errorf("gpu: recovery action of %s: %w", uuid, err)
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
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_INVALID_ARGUMENT: // how older drivers refuse a field they do not know
		return ActionNone, d.failed(nvml.ERROR_NOT_SUPPORTED)
	default:
		return ActionNone, d.failed(ret)
	}
	n := nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(v[0].Value[:4]))
	if a, ok := recoveryActions[n]; ok {
		return a, nil
	}
	return ActionDrain, nil // newer than this table: not healthy in any case
}

// watch takes one event at a time, and looks at every GPU at the start, every scan, and when
// the events fail: a GPU that fell off the bus may send nothing.
func (d *nvmlDriver) watch(ctx context.Context, emit func(Event)) error {
	d.mu.RLock()
	if d.closed {
		d.mu.RUnlock()
		return ErrClosed
	}
	d.watches.Add(1)
	d.mu.RUnlock()
	defer d.watches.Done()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()

	w := &watch{nvmlDriver: d, emit: emit, lost: map[string]bool{}, action: map[string]Action{}}
	w.arm()
	defer w.disarm()
	w.look()
	looked := time.Now()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		if w.set == nil {
			pause.Reset(d.poll)
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
		} else if !w.wait() {
			// The set is armed again after the next look, so that failing is never a busy loop.
			w.disarm()
			w.look()
			looked = time.Now()
		}
		if ctx.Err() == nil && time.Since(looked) >= d.scan {
			w.look()
			looked = time.Now()
			if w.set == nil {
				w.arm()
			}
		}
	}
	return nil
}

// watch is what one call of Watch knows; only its goroutine uses it.
type watch struct {
	*nvmlDriver
	emit   func(Event)
	set    nvml.EventSet     // nil while events cannot be had
	lost   map[string]bool   // by UUID of the GPU
	action map[string]Action // the last recovery action by UUID of the GPU
}

const wantedEvents = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError |
	nvml.EventTypeGpuUnavailableError | nvml.EventTypeGpuRecoveryAction

// arm registers every GPU that can tell something. Failure leaves the regular look.
func (w *watch) arm() {
	for _, name := range []string{"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes"} {
		if !w.has(name) {
			return
		}
	}
	if !w.has("nvmlEventSetWait_v2", "nvmlEventSetWait") {
		return
	}
	set, ret := w.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	armed := false
	for _, g := range w.gpus {
		can, ret := g.handle.GetSupportedEventTypes()
		if ret != nvml.SUCCESS || can&wantedEvents == 0 {
			continue
		}
		if g.handle.RegisterEvents(can&wantedEvents, set) == nvml.SUCCESS {
			armed = true
		}
	}
	if !armed {
		set.Free()
		return
	}
	w.set = set
}

func (w *watch) disarm() {
	if w.set != nil {
		w.set.Free()
		w.set = nil
	}
}

// wait takes the next event; false means that the set is of no more use.
func (w *watch) wait() bool {
	data, ret := w.set.Wait(uint32(w.poll.Milliseconds()))
	switch ret {
	case nvml.ERROR_TIMEOUT:
		return true
	case nvml.SUCCESS:
	default:
		return false
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
	w.lookAt(g) // the recovery action may have changed with it
	return true
}

// source finds the GPU of an event. A lost GPU no longer tells its UUID, so handles come first.
func (w *watch) source(h nvml.Device) (nvmlDevice, bool) {
	for _, g := range w.gpus {
		if g.handle == h {
			return g, true
		}
	}
	if h == nil {
		return nvmlDevice{}, false
	}
	uuid, ret := h.GetUUID()
	for _, g := range w.gpus {
		if ret == nvml.SUCCESS && g.info.UUID == uuid {
			return g, true
		}
	}
	return nvmlDevice{}, false
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

func (w *watch) look() {
	for _, g := range w.gpus {
		w.lookAt(g)
	}
}

// lookAt reports what changed on a GPU since the last look: gone, back, another recovery
// action. A GPU that cannot even tell its memory is gone, whatever the error is called.
func (w *watch) lookAt(g nvmlDevice) {
	uuid := g.info.UUID
	e := Event{UUID: uuid, GPU: uuid, Time: time.Now()}
	_, err := w.memory(g.handle)
	gone := err != nil && !errors.Is(err, errors.ErrUnsupported)
	action, recErr := w.recoveryOf(g.handle)
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
