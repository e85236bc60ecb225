package sharing

import (
	"context"
	"fmt"
)

// exclusive is sharing: exclusive. One slot owns the device.
type exclusive struct{}

func (exclusive) Check(u Use) []Problem {
	const instead = "an exclusive device has 1 slot, so %s or use sharing: default"
	switch {
	case u.Auto:
		return append(noThreads(u), Problem{"slots", "auto with sharing: exclusive; " + fmt.Sprintf(instead, "leave slots out")})
	case u.Slots > 1:
		return append(noThreads(u), Problem{"slots", fmt.Sprintf("%d slots with sharing: exclusive; "+instead, u.Slots, "lower slots")})
	}
	return noThreads(u)
}

func (exclusive) Alone() bool             { return true }
func (exclusive) Limits() string          { return "" }
func (exclusive) Processes(slots int) int { return slots }

func (exclusive) Prepare(_ context.Context, _ *Host, u Use) (Share, error) {
	return apart{handedOn(u.Devices[0])}, nil
}
