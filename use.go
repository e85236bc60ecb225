package gpumux

import (
	"fmt"
	"time"
)

// GPUUse is what GPUs did while calls of a map had them. Where several calls had a GPU at
// the same time, each has an equal share of it, so that shares add up to what it did.
type GPUUse struct {
	// Time is how long the map had GPUs, from the moment that it had a slot: starts of
	// processes count.
	Time Duration `json:"time"`
	// Computing is the part of Time in which a kernel ran, as nvidia-smi counts it: on one
	// core or on all. Slowed is the part with clocks lowered for heat, or for want of power.
	Computing Duration `json:"computing"`
	Slowed    Duration `json:"slowed,omitempty"`
	// Energy is in joules; 0 where the driver does not tell.
	Energy float64 `json:"energy,omitempty"`
	// Cost is Time by the price of the pools that have one.
	Cost float64 `json:"cost,omitempty"`
}

// Add adds all of another.
func (u *GPUUse) Add(other *GPUUse) {
	if other != nil {
		u.Time += other.Time
		u.Computing += other.Computing
		u.Slowed += other.Slowed
		u.Energy += other.Energy
		u.Cost += other.Cost
	}
}

// Known returns u, or nil where nobody looked at a GPU.
func (u GPUUse) Known() *GPUUse {
	if u.Time <= 0 {
		return nil
	}
	return &u
}

// Text says what the GPUs did for so many items, whose processes were busy for so long;
// nothing where nobody looked at one.
func (u *GPUUse) Text(items int64, busy Duration) string {
	if u == nil {
		return ""
	}
	percent := func(part Duration) float64 { return 100 * float64(part) / float64(max(1, u.Time)) }
	text := fmt.Sprintf("%.0f%% busy", percent(u.Computing))
	if u.Energy > 0 {
		text += fmt.Sprintf(" at %.0f W, %s", u.Energy/time.Duration(u.Time).Seconds(), joules(u.Energy))
		if items > 1 {
			text += fmt.Sprintf(", %s per item", joules(u.Energy/float64(items)))
		}
	}
	if u.Cost > 0 {
		text += fmt.Sprintf("; cost %.2f", u.Cost)
	}
	if percent(u.Slowed) >= 1 {
		text += fmt.Sprintf("; slowed by heat or for want of power %.0f%% of the time", percent(u.Slowed))
	}
	if time.Duration(u.Time) >= 10*time.Second && percent(u.Computing) < 50 && percent(busy) > 80 {
		text += "; its items leave it idle: try more slots per GPU, or stages for what they do on the CPU"
	}
	return text
}

func joules(energy float64) string {
	unit := 0
	for ; energy >= 999.5 && unit < 3; unit++ {
		energy /= 1000
	}
	return fmt.Sprintf("%.3g %sJ", energy, []string{"", "k", "M", "G"}[unit])
}
