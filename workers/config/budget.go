package config

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/internal/text"
)

// reserve stays free of a device for others: the most that a pool on it says.
func reserve(d gpu.Device, pools []Placement) (largest uint64) {
	for _, p := range pools {
		if p.uses(d) {
			largest = max(largest, uint64(p.Reserve))
		}
	}
	return largest
}

// left is the part of a device that budgets can have, in bytes.
func left(d gpu.Device, pools []Placement) uint64 {
	return d.Available() - min(d.Available(), reserve(d, pools))
}

// shortage says how much memory budgets can have on a device, and what to lower.
func shortage(d gpu.Device, pools []Placement) string {
	var less []string
	lower := "lower memory or slots"
	if d.Reserved > 0 {
		less = append(less, fmt.Sprintf("%s that the driver keeps", gpumux.Size(d.Reserved)))
	}
	if reserve := reserve(d, pools); reserve > 0 {
		less = append(less, fmt.Sprintf("%s of reserve", gpumux.Size(reserve)))
		lower = "lower memory, slots or reserve"
	}
	return fmt.Sprintf("%s of %s", gpumux.Size(left(d, pools)), d) +
		text.When(len(less) > 0, ", which has %s less %s", gpumux.Size(d.Memory), strings.Join(less, " and ")) + "; " + lower
}

// capacity bounds AutoSlots per group: by what other pools leave, and in all.
func (p Placement) capacity(all []Placement) (fit, limit int) {
	fit = maxSlots
	for _, d := range p.devices() {
		free := left(d, all)
		for _, o := range all {
			if o.index != p.index && o.uses(d) {
				free -= min(free, o.share()*uint64(o.MinSlots()))
			}
		}
		if each := p.share(); each > 0 && d.Memory > 0 {
			fit = min(fit, int(min(free/each, maxSlots)))
		}
	}
	limit = autoGPU
	if p.Groups[0].Devices[0].Kind == gpu.KindCPU {
		limit = min(maxSlots, runtime.GOMAXPROCS(0))
	}
	return max(1, fit), max(1, min(fit, limit))
}

// share is the part of a slot's budget on one of its devices.
func (p Placement) share() uint64 { return uint64(p.Memory) / uint64(p.GPUsPerSlot) }

// Whole is the budget of a slot with its group to itself: what all pools give there.
func (p Placement) Whole(g Group, all []Placement) gpumux.Size {
	smallest := uint64(math.MaxUint64)
	for _, d := range g.Devices {
		sum := uint64(0)
		for _, o := range all {
			if o.uses(d) {
				sum += o.share() * uint64(o.Fit)
			}
		}
		smallest = min(smallest, sum)
	}
	if p.Memory == 0 {
		return 0
	}
	return gpumux.Size(smallest) * gpumux.Size(p.GPUsPerSlot)
}

// checkShares checks the sum of budgets, per device over all pools.
func checkShares(placements []Placement, r *report) {
	for _, d := range Devices(placements) {
		pools := slices.DeleteFunc(slices.Clone(placements), func(p Placement) bool { return !p.uses(d) })
		sum := 0.0
		var parts []string
		auto := ""
		for _, p := range pools {
			r.when(p.Auto() && auto != "", fmt.Sprintf("pools[%d].slots", p.index), "auto, but pool %s has that on %s too; give one of them a number", auto, d)
			if p.Auto() {
				auto = p.Name
			}
			if p.Memory > 0 {
				sum += float64(p.share()) * float64(p.MinSlots())
				parts = append(parts, fmt.Sprintf("%d × %s in pool %s", p.MinSlots(), gpumux.Size(p.share()), p.Name))
			}
		}
		switch largest := slices.MaxFunc(pools, func(a, b Placement) int { return cmp.Compare(a.Reserve, b.Reserve) }); {
		case d.Memory == 0:
		case left(d, pools) == 0:
			r.add(fmt.Sprintf("pools[%d].reserve", largest.index), "%s leave nothing of the %s of %s; lower reserve", largest.Reserve,
				gpumux.Size(d.Available()), d)
		case sum > float64(left(d, pools)):
			last := pools[len(pools)-1].index
			r.add(fmt.Sprintf("pools[%d].memory", last), "%s is more than the %s", strings.Join(parts, " + "), shortage(d, pools))
		}
	}
}

// checkComputeModes reports devices that do not let as many processes in as there are
// slots: CUDA refuses those above with error 46, for as long as the first one lives.
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
			if sharing.Mode(p.Sharing) == sharing.MPS {
				clients += p.MaxSlots
			} else {
				processes += p.MaxSlots
			}
		}
		served := min(clients, 1) // the server is one process, whosever clients it has
		switch {
		case clients > sharing.MaxClients:
			r.add(at+".slots", "%d with sharing: mps on %s, whose server has %d clients at most; lower it", clients, d, sharing.MaxClients)
		case status.ComputeMode == "prohibited":
			r.add(at+".devices", "%s is in compute mode prohibited, which lets no process in; leave it out, or set nvidia-smi -i %s -c DEFAULT",
				d, d.UUID)
		case processes+served > 1 && status.ComputeMode == "exclusive_process":
			r.add(at+".slots", "%d on %s, which is in compute mode exclusive_process and lets one process in; use slots: 1, sharing: mps in all"+
				" pools on it, or set nvidia-smi -i %s -c DEFAULT", processes+served, d, d.UUID)
		}
	}
}

// checkSharing reports what the pools' ways to share cannot work with.
func (c Config) checkSharing(placements []Placement, r *report) {
	for _, p := range placements {
		at := fmt.Sprintf("pools[%d]", p.index)
		use := sharing.Use{Slots: p.MaxSlots, PerSlot: p.GPUsPerSlot, Auto: p.Auto(), Devices: p.devices()}
		var known []gpumux.Problem
		for _, problem := range sharing.Mode(p.Sharing).Check(use) {
			if !slices.Contains(known, problem) {
				known = append(known, problem)
				r.add(at+"."+problem.Field, "%s", problem.Message)
			}
		}
	}
}
