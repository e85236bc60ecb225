package config

import (
	"fmt"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/sharing"
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
		processes, clients, at := 0, 0, ""
		for _, p := range placements {
			if !p.uses(d) {
				continue
			}
			at = fmt.Sprintf("pools[%d]", p.index)
			if p.Sharing == sharing.MPS {
				clients += p.Most
			} else {
				processes += p.Most
			}
		}
		served := min(clients, 1) // the server is one process, whosever clients it has
		switch {
		case clients > sharing.MostClients:
			r.add(at+".slots", "%d with sharing: mps on %s, whose server has %d clients at most; lower it", clients, d, sharing.MostClients)
		case status.ComputeMode == "prohibited":
			r.add(at+".devices", "%s is in compute mode prohibited, which lets no process in; leave it out, or set nvidia-smi -i %s -c DEFAULT",
				d, d.UUID)
		case processes+served > 1 && status.ComputeMode == "exclusive_process":
			r.add(at+".slots", "%d on %s, which is in compute mode exclusive_process and lets one process in; use slots: 1, sharing: mps in all"+
				" pools on it, or set nvidia-smi -i %s -c DEFAULT", processes+served, d, d.UUID)
		}
	}
}
