package main

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// backend is a slot of a pool, and the name of the module with its operations.
type backend struct {
	module string
	slot   *workflows.Slot
}

func (b backend) call(ctx workflow.Context, operation string, item any) (gpumux.Resident, error) {
	return workflows.Call[gpumux.Resident](ctx, b.slot, b.module+":"+operation, item)
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

// chain does each operation on the first of its backends that takes it.
type chain struct {
	name     string
	backends []backend
	steps    []step
	copies   int
}

// run does an operation and leaves what comes of it where it ran.
func (c *chain) run(ctx workflow.Context, operation string, inputs ...gpumux.Resident) (gpumux.Resident, error) {
	done := step{Chain: c.name, Operation: operation}
	for at, b := range c.backends {
		inputs, err := c.bring(ctx, b, inputs)
		if err != nil {
			return gpumux.Resident{}, err
		}
		handle, err := b.call(ctx, operation, inputs)
		if fault := workflows.FaultOf(err); fault != nil && fault.Class == "NotImplementedError" && at+1 < len(c.backends) {
			done.Refused = fmt.Sprintf("%s, %s", b.slot.Seat().Slot, fault.Class)
			continue
		}
		if err == nil {
			err = done.fill(ctx, b, handle)
		}
		c.steps = append(c.steps, done)
		return handle, err
	}
	return gpumux.Resident{}, fmt.Errorf("the chain %s has no backend", c.name)
}

// bring moves inputs to a backend that are elsewhere.
func (c *chain) bring(ctx workflow.Context, to backend, inputs []gpumux.Resident) (here []gpumux.Resident, err error) {
	for _, h := range inputs {
		for _, from := range c.backends {
			if from != to && h.Slot == from.slot.Seat().Slot {
				if h, err = workflows.Move(ctx, h, from.slot, to.slot); err != nil {
					return nil, err
				}
				c.copies++
			}
		}
		here = append(here, h)
	}
	return here, nil
}

// fill says where an array is, and fetches its numbers.
func (s *step) fill(ctx workflow.Context, b backend, handle gpumux.Resident) (err error) {
	s.Slot, s.Place = handle.Slot, handle.Place
	s.Value, err = workflows.Call[any](ctx, b.slot, b.module+":value", handle)
	return err
}
