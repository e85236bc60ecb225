package main

import (
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// report is the program's output.
type report struct {
	Devices []string `json:"devices"`
	Steps   []step   `json:"steps"`
	Copies  int      `json:"copies"`
}

// step is an operation, where it ran and what came of it.
type step struct {
	Chain     string `json:"chain"`
	Operation string `json:"operation"`
	Slot      string `json:"slot"`
	Place     string `json:"place"`
	Refused   string `json:"refused,omitempty"`
	Value     any    `json:"value"`
}

// add notes where an array is, and fetches its numbers.
func (r *report) add(ctx workflow.Context, s step, b backend, handle gpumux.Resident) (err error) {
	s.Slot, s.Place = handle.Slot, handle.Place
	s.Value, err = workflows.Call[any](ctx, b.slot, b.module+":value", handle)
	r.Steps = append(r.Steps, s)
	return err
}

// n is how many rows and columns the matrices have.
const n = 32

// Backends does the same operations on the chain first, cpu and on the CPU alone.
func Backends(ctx workflow.Context) (r report, err error) {
	err = lease(ctx, "cpu", func(ctx workflow.Context, cpu backend) error {
		err := lease(ctx, "first", func(ctx workflow.Context, first backend) error {
			devices, err := workflows.Call[[]string](ctx, first.slot, "first:devices", nil)
			for _, each := range devices {
				r.Devices = append(r.Devices, first.slot.Seat().Slot+" "+each)
			}
			if err != nil {
				return err
			}
			return chain{"both", []backend{first, cpu}, &r}.operations(ctx)
		})
		if err != nil {
			return err
		}
		return chain{"cpu", []backend{cpu}, &r}.operations(ctx)
	})
	return r, err
}

// backend is a slot of a pool, and the name of the module with its operations.
type backend struct {
	module string
	slot   *workflows.Slot
}

// lease takes a slot of a rung while f runs.
func lease(ctx workflow.Context, rung string, f func(workflow.Context, backend) error) error {
	return workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{rung}}, func(ctx workflow.Context, s *workflows.Slot) error {
		module, _, _ := strings.Cut(rung, "@")
		return f(ctx, backend{module, s})
	})
}

func (b backend) start(ctx workflow.Context, operation string, item any) workflows.Future[gpumux.Resident] {
	return workflows.CallAsync[gpumux.Resident](ctx, b.slot, b.module+":"+operation, item)
}
