// Package gpu knows the devices of this host: GPUs and MIG instances through the NVIDIA
// driver's library (NVML), and the CPU with its memory.
//
// It owns the connection to NVML and the list of devices, their memory, processes, links and
// health, and the resident memory of process trees.
// It never starts or ends processes, changes a setting of a device, or decides what a health
// event means for the work; it imports nothing else of gpumux.
// An Inventory stops when it is closed, which ends its watches too; a watch also ends with
// its context.
//
// NVML is reached through cgo on Linux; other builds list the CPU only. Such a binary must not
// be linked statically or with immediate binding (-z now, LD_BIND_NOW): the binding leaves its
// symbols open until the library is loaded. A process loads one NVML library and keeps it.
//
// Files:
//
//	device.go             Device, Memory, Process, Status, Link: what is reported
//	inventory.go          Options, Open and the methods of Inventory
//	select.go             from `devices: all | cpu | [0, GPU-…]` to devices; CUDA_VISIBLE_DEVICES
//	health.go             Event, Action and the table of Xid errors
//	cpu.go                the host as a device
//	host_linux.go         its name, memory and cgroup limit
//	host_darwin.go        the same on macOS
//	host_other.go         and where neither is known
//	process.go            trees of processes and their memory
//	process_linux.go      the scan of /proc
//	process_other.go      the same from ps
//	census.go             the same trees followed through time at little cost
//	census_linux.go       its rounds over /proc, and high-water marks
//	census_other.go       its rounds with ps
//	nvml_linux.go         loading NVML, listing GPUs and MIG instances
//	nvml_status_linux.go  memory, load and processes of a device
//	nvml_inquiry_linux.go questions that a driver may never answer
//	nvml_link_linux.go    topology and peer access
//	nvml_health_linux.go  events and recovery actions
//	nvml_stub.go          builds without NVML
//	gputest/              GPUs for tests: a C library in the place of the driver's
package gpu
