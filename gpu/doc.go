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
package gpu
