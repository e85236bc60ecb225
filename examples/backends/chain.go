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

func (b backend) call(ctx workflow.Context, operation string, item any) (gpumux.Handle, error) {
	return workflows.Call[gpumux.Handle](ctx, b.slot, b.module+":"+operation, item)
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

// resident is an array, and the backend of the chain where it is.
type resident struct {
	handle gpumux.Handle
	at     int
}

// chain does each operation on the first of its backends that takes it.
type chain struct {
	name     string
	backends []backend
	steps    []step
	copies   int
}

// load makes a matrix on the first backend.
func (c *chain) load(ctx workflow.Context, seed int) (*resident, error) {
	handle, err := c.backends[0].call(ctx, "load", map[string]int{"seed": seed, "n": n})
	return &resident{handle, 0}, err
}

// run does an operation and leaves what comes of it where it ran.
func (c *chain) run(ctx workflow.Context, operation string, inputs ...*resident) (*resident, error) {
	refused := ""
	for at, b := range c.backends {
		handles, err := c.bring(ctx, at, inputs)
		if err != nil {
			return nil, err
		}
		handle, err := b.call(ctx, operation, handles)
		if fault := workflows.FaultOf(err); fault != nil && fault.Class == "NotImplementedError" && at+1 < len(c.backends) {
			refused = fmt.Sprintf("%s, %s", b.slot.Seat().Slot, fault.Class)
			continue
		}
		if err != nil {
			return nil, err
		}
		done := step{Chain: c.name, Operation: operation, Refused: refused}
		if err := done.fill(ctx, b, handle); err != nil {
			return nil, err
		}
		c.steps = append(c.steps, done)
		return &resident{handle, at}, nil
	}
	return nil, fmt.Errorf("the chain %s has no backend", c.name)
}

// bring moves inputs to a backend that are elsewhere.
func (c *chain) bring(ctx workflow.Context, at int, inputs []*resident) (handles []gpumux.Handle, err error) {
	for _, each := range inputs {
		if each.at != at {
			if each.handle, err = workflows.Move(ctx, each.handle, c.backends[each.at].slot, c.backends[at].slot); err != nil {
				return nil, err
			}
			each.at = at
			c.copies++
		}
		handles = append(handles, each.handle)
	}
	return handles, nil
}

// fill says where an array is, and fetches its numbers.
func (s *step) fill(ctx workflow.Context, b backend, handle gpumux.Handle) (err error) {
	s.Slot, s.Place = handle.Slot, handle.Place
	s.Value, err = workflows.Call[any](ctx, b.slot, b.module+":value", handle)
	return err
}
