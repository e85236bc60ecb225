//go:build cgo

package gpu

import (
	"fmt"
	"os"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
)

// libraryPaths is where NVML is looked for: the loader's path, then where WSL, managed
// Kubernetes and NixOS put it without telling the loader.
var libraryPaths = []string{
	"libnvidia-ml.so.1",
	"/usr/lib/wsl/lib/libnvidia-ml.so.1",
	"/usr/local/nvidia/lib64/libnvidia-ml.so.1",
	"/run/opengl-driver/lib/libnvidia-ml.so.1",
}

// needed is the functions that are called, which all drivers have from 525 on. Calling
// one that the library lacks would end the process.
var needed = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion",
	"nvmlSystemGetProcessName", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
	"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetUtilizationRates",
	"nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeMode", "nvmlDeviceGetMigMode",
	"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
	"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetTotalEnergyConsumption",
	"nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus",
}

// loaded is the one library of this process: the dynamic linker binds each function to
// the first library that has it, so a second one would be mixed with the first.
var loaded struct {
	sync.Mutex
	path string
}

func load(paths []string) (string, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.path != "" {
		if len(paths) == 1 && paths[0] != loaded.path {
			return "", fmt.Errorf("this process already uses NVML from %s and cannot use %s too; start another process for it", loaded.path, paths[0])
		}
		return loaded.path, nil
	}
	var broken error
	for _, p := range paths {
		lib := dl.New(p, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
		if err := lib.Open(); err != nil {
			if _, missing := os.Stat(p); missing == nil && broken == nil {
				broken = err
			}
			continue
		}
		for _, name := range needed {
			if lib.Lookup(name) != nil {
				_ = lib.Close()
				return "", &absentError{fmt.Sprintf("%s is not a usable NVML: it has no function %s", p, name), "install an NVIDIA driver from 525 on, or use devices: cpu"}
			}
		}
		loaded.path = p
		return p, nil
	}
	if broken != nil {
		return "", &absentError{fmt.Sprintf("the NVML library cannot be loaded: %v", broken), "reinstall the NVIDIA driver for this kind of machine, or use devices: cpu"}
	}
	return "", &absentError{fmt.Sprintf("no NVIDIA driver: %s not found", paths[0]), hintNoDriver}
}
