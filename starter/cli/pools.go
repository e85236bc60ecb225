package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/config"
)

// pool is what the flags say of every pool of a local worker; the flags are good.
func (f *taskFlags) pool() config.Pool {
	memory, _ := gpumux.ParseSize(f.memory)
	return config.Pool{Slots: config.Slots(f.slots), Memory: memory, Mode: gpumux.Mode(f.mode)}
}

// slotCount is --slots: a number, or auto. 0 is the default.
type slotCount config.Slots

// String implements pflag.Value.
func (s *slotCount) String() string {
	switch config.Slots(*s) {
	case 0:
		return ""
	case config.AutoSlots:
		return "auto"
	}
	return strconv.Itoa(int(*s))
}

// Set implements pflag.Value.
func (s *slotCount) Set(text string) error { return (*config.Slots)(s).UnmarshalText([]byte(text)) }

// Type implements pflag.Value.
func (s *slotCount) Type() string { return "number" }

// offered describes pools in a line each: "gpu: 2 slots per device on all".
func offered(pools []gpumux.PoolInfo) string {
	var lines []string
	for _, p := range pools {
		line := fmt.Sprintf("%s (%d slots", p.Name, p.Slots)
		if p.MaxSlots > 0 {
			line += fmt.Sprintf(", at most %d by measurement,", p.MaxSlots)
		}
		if p.Memory > 0 {
			line += " of " + p.Memory.String()
		}
		lines = append(lines, line+" on "+strings.Join(p.Devices, ", ")+")")
	}
	return strings.Join(lines, ", ")
}
