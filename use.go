package gpumux

import (
	"fmt"
	"time"

	"github.com/gpumux/gpumux/internal/text"
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
	// Slots is how long slots of GPUs were held, Busy how long of that Items ran in them.
	Slots Duration `json:"slots"`
	Busy  Duration `json:"busy"`
	Items int64    `json:"items"`
}

// Add adds all of another.
func (u *GPUUse) Add(other *GPUUse) {
	if other != nil {
		u.Time += other.Time
		u.Computing += other.Computing
		u.Slowed += other.Slowed
		u.Energy += other.Energy
		u.Cost += other.Cost
		u.Slots += other.Slots
		u.Busy += other.Busy
		u.Items += other.Items
	}
}

// Known returns u, or nil where nobody looked at a GPU.
func (u GPUUse) Known() *GPUUse {
	if u.Time <= 0 {
		return nil
	}
	return &u
}

// String says it for people; nothing where nobody looked at a GPU.
func (u *GPUUse) String() string {
	if u == nil {
		return ""
	}
	percent := func(part, all Duration) float64 { return 100 * float64(part) / float64(max(1, all)) }
	slowed := percent(u.Slowed, u.Time)
	idle := time.Duration(u.Time) >= 10*time.Second && percent(u.Computing, u.Time) < 50 && percent(u.Busy, u.Slots) > 80
	return fmt.Sprintf("%.0f%% busy", percent(u.Computing, u.Time)) +
		text.When(u.Energy > 0, " at %.0f W, %s", u.Energy/time.Duration(u.Time).Seconds(), joules(u.Energy)) +
		text.When(u.Energy > 0 && u.Items > 1, ", %s per item", joules(u.Energy/float64(u.Items))) +
		text.When(u.Cost > 0, "; cost %.3g", u.Cost) +
		text.When(slowed >= 1, "; slowed by heat or for want of power %.0f%% of the time", slowed) +
		text.When(idle, "; its items leave it idle: try more slots per GPU, or stages for what they do on the CPU")
}

func joules(energy float64) string {
	unit := 0
	for ; energy >= 999.5 && unit < 3; unit++ {
		energy /= 1000
	}
	return fmt.Sprintf("%.3g %sJ", energy, []string{"", "k", "M", "G"}[unit])
}
