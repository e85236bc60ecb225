package main

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// chain does each operation on the first of its backends that takes it.
type chain struct {
	name     string
	backends []backend
	report   *report
}

// operations does each of them with what the one before it left.
func (c chain) operations(ctx workflow.Context) error {
	var matrices []gpumux.Resident
	for seed := range 2 {
		matrix, err := c.backends[0].start(ctx, "load", map[string]int{"seed": seed, "n": n}).Get(ctx)
		if err != nil {
			return err
		}
		matrices = append(matrices, matrix)
	}
	for _, operation := range []string{"product", "relu", "softmax", "eigenvalues"} {
		x, err := c.run(ctx, operation, matrices)
		if err != nil {
			return err
		}
		matrices = []gpumux.Resident{x}
	}
	return nil
}

// run does an operation and leaves what comes of it where it ran.
func (c chain) run(ctx workflow.Context, operation string, inputs []gpumux.Resident) (gpumux.Resident, error) {
	done := step{Chain: c.name, Operation: operation}
	for at, b := range c.backends {
		here, err := c.bring(ctx, b, inputs)
		if err != nil {
			return gpumux.Resident{}, err
		}
		handle, err := b.start(ctx, operation, here).Get(ctx)
		if fault := workflows.FaultOf(err); fault != nil && fault.Class == "NotImplementedError" && at+1 < len(c.backends) {
			done.Refused = fmt.Sprintf("%s, %s", b.slot.Seat().Slot, fault.Class)
			continue
		}
		if err == nil {
			err = c.report.add(ctx, done, b, handle)
		}
		return handle, err
	}
	return gpumux.Resident{}, fmt.Errorf("the chain %s has no backend", c.name)
}

// bring moves inputs to a backend that are elsewhere.
func (c chain) bring(ctx workflow.Context, to backend, inputs []gpumux.Resident) (here []gpumux.Resident, err error) {
	for _, h := range inputs {
		for _, from := range c.backends {
			if from != to && h.Slot == from.slot.Seat().Slot {
				if h, err = workflows.Move(ctx, h, from.slot, to.slot); err != nil {
					return nil, err
				}
				c.report.Copies++
			}
		}
		here = append(here, h)
	}
	return here, nil
}
