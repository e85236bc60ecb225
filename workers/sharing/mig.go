package sharing

import (
	"context"
	"fmt"

	"github.com/gpumux/gpumux/gpu"
)

// instances is sharing: mig. Each slot has a part of a GPU's hardware, as somebody has laid it out.
type instances struct{}

func (instances) Check(u Use) []Problem {
	list := noThreads(u)
	for _, d := range u.Devices {
		if d.Kind != gpu.KindMIG {
			list = append(list, Problem{"devices", fmt.Sprintf("%s is no MIG instance; leave it out, or lay it out: nvidia-smi -i %s -mig 1, "+
				"then nvidia-smi mig -cgi <profile> -C", d, d.UUID)})
		}
	}
	return list
}

func (instances) Alone() bool             { return false }
func (instances) Limits() string          { return "" }
func (instances) Processes(slots int) int { return slots }

func (instances) Prepare(context.Context, *Host, Use) (Share, error) { return apart{}, nil }
