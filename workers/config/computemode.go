package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpumux/gpumux/gpu"
)

// checkComputeModes reports devices that do not let as many processes in as there are slots: CUDA refuses those above with error 46,
// for as long as the first one lives.
func checkComputeModes(placements []Placement, inventory *gpu.Inventory, r *report) {
	for _, d := range Devices(placements) {
		if d.Kind == gpu.KindCPU {
			continue
		}
		status, err := inventory.Status(d.UUID)
		if err != nil {
			continue // its health is looked at when the worker starts
		}
		slots, at := 0, ""
		for _, p := range placements {
			if p.uses(d) {
				slots += p.Most
				at = fmt.Sprintf("pools[%d]", p.index)
			}
		}
		switch {
		case status.ComputeMode == "prohibited":
			r.add(at+".devices", "%s is in compute mode prohibited, which lets no process in; leave it out, or set nvidia-smi -i %s -c DEFAULT",
				d, d.UUID)
		case slots > 1 && status.ComputeMode == "exclusive_process" && !servedByMPS():
			r.add(at+".slots", "%d on %s, which is in compute mode exclusive_process and lets one process in; use slots: 1, set nvidia-smi -i %s"+
				" -c DEFAULT, or start an MPS daemon", slots, d, d.UUID)
		}
	}
}

// servedByMPS reports whether an MPS daemon runs where CUDA looks for it. It is the one process then.
func servedByMPS() bool {
	_, err := os.Stat(filepath.Join(cmp.Or(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "/tmp/nvidia-mps"), "control"))
	return err == nil
}
