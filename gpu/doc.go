// Package gpu owns the connection to the NVIDIA driver's library (NVML), what is known of this host's devices (GPUs, MIG instances,
// the CPU), and the resident memory of process trees. It never starts or ends a process, changes a setting of a device, or decides
// what a health event means for the work, and it imports nothing else of gpumux. An Inventory and its watches stop when it is
// closed; a watch also ends with its context.
//
// NVML needs cgo and Linux; other builds list the CPU only. Do not link such a binary statically or with immediate binding (-z now,
// LD_BIND_NOW): its symbols stay open until the library is loaded. A process loads one NVML library and keeps it.
package gpu
