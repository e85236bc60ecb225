//go:build cgo

package gpu

import (
	"errors"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// layout lists the devices as they are now: instances of a GPU in MIG mode come and go while the driver stays loaded.
func (d *nvmlDriver) layout() ([]Device, error) {
	if err := d.acquire(); err != nil {
		return nil, err
	}
	defer d.release()
	var gates nvmlDriver // of its own, so that nobody else sees the list change
	gates.lib = d.lib
	return ask(d, d.listing, d.patience, func() ([]Device, error) {
		found, _, err := gates.devices()
		return found, err
	})
}

// renewed is a new handle of a device whose old one the driver refuses, as after an instance was made again.
func (d *nvmlDriver) renewed(uuid string, err error) (nvml.Device, bool) {
	stale := errors.Is(err, nvml.ERROR_INVALID_ARGUMENT) || errors.Is(err, nvml.ERROR_NOT_FOUND) || errors.Is(err, nvml.ERROR_UNKNOWN)
	if !stale || !d.has("nvmlDeviceGetHandleByUUID") {
		return nil, false
	}
	handle, ret := d.lib.DeviceGetHandleByUUID(uuid)
	return handle, ret == nvml.SUCCESS
}
