package main

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// places says where the two products run, as rungs such as first or first@node1/GPU-5c89,
// and the second device of one slot.
type places struct {
	Left, Right, Second string
}

// report is the program's output.
type report struct {
	Devices []string `json:"devices"`
	Steps   []step   `json:"steps"`
	Copies  int      `json:"copies"`
}

// n is how many rows and columns the matrices have.
const n = 32

// with takes a slot of the first pool of a ladder that offers one.
func with(ctx workflow.Context, rung string, f func(workflow.Context, backend) error) error {
	return workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{rung}}, func(ctx workflow.Context, s *workflows.Slot) error {
		module, _, _ := strings.Cut(rung, "@")
		return f(ctx, backend{module, s})
	})
}

// Backends does the same operations on the chain first, cpu and on the CPU alone, and
// then two products and their sum by hand.
func Backends(ctx workflow.Context, p places) (r report, err error) {
	err = with(ctx, "cpu", func(ctx workflow.Context, cpu backend) error {
		err := with(ctx, "first", func(ctx workflow.Context, first backend) error {
			places, err := workflows.Call[[]string](ctx, first.slot, "first:devices", nil)
			for _, each := range places {
				r.Devices = append(r.Devices, first.slot.Seat().Slot+" "+each)
			}
			if err != nil {
				return err
			}
			return r.operations(ctx, &chain{name: "both", backends: []backend{first, cpu}})
		})
		if err != nil {
			return err
		}
		return r.operations(ctx, &chain{name: "cpu", backends: []backend{cpu}})
	})
	if err != nil {
		return r, err
	}
	err = with(ctx, p.Left, func(ctx workflow.Context, left backend) error {
		return with(ctx, p.Right, func(ctx workflow.Context, right backend) error {
			return r.products(ctx, left, right, p.Second)
		})
	})
	return r, err
}

// operations does each of them, on the first backend that takes it.
func (r *report) operations(ctx workflow.Context, c *chain) error {
	defer func() { r.Steps, r.Copies = append(r.Steps, c.steps...), r.Copies+c.copies }()
	var matrices []gpumux.Resident
	for seed := range 2 {
		matrix, err := c.backends[0].call(ctx, "load", map[string]int{"seed": seed, "n": n})
		if err != nil {
			return err
		}
		matrices = append(matrices, matrix)
	}
	x, err := c.run(ctx, "product", matrices...)
	for _, operation := range []string{"relu", "softmax", "eigenvalues"} {
		if err != nil {
			return err
		}
		x, err = c.run(ctx, operation, x)
	}
	return err
}

// products computes A·B on one slot beside C·D on another, brings them together, and adds
// them there on two devices of one process.
func (r *report) products(ctx workflow.Context, left, right backend, second string) error {
	var futures []workflows.Future[gpumux.Resident]
	for at, b := range []backend{left, left, right, right} {
		item := map[string]int{"seed": at, "n": n}
		futures = append(futures, workflows.CallAsync[gpumux.Resident](ctx, b.slot, b.module+":load", item))
	}
	loaded, err := all(ctx, futures)
	if err != nil {
		return err
	}
	products, err := all(ctx, []workflows.Future[gpumux.Resident]{
		workflows.CallAsync[gpumux.Resident](ctx, left.slot, left.module+":product", loaded[:2]),
		workflows.CallAsync[gpumux.Resident](ctx, right.slot, right.module+":product", loaded[2:]),
	})
	if err != nil {
		return err
	}
	moved, err := workflows.Move(ctx, products[1], right.slot, left.slot)
	if err != nil {
		return err
	}
	r.Copies++
	sum, err := left.call(ctx, "add", []gpumux.Resident{products[0], moved})
	if err != nil {
		return err
	}
	there, err := left.call(ctx, "add", []gpumux.Resident{products[0].On(second), moved.On(second)})
	if err != nil {
		return err
	}
	for _, each := range []struct {
		operation string
		b         backend
		handle    gpumux.Resident
	}{{"left", left, products[0]}, {"right", right, products[1]}, {"sum", left, sum}, {"sum after On", left, there}} {
		done := step{Chain: "hand", Operation: each.operation}
		if err := done.fill(ctx, each.b, each.handle); err != nil {
			return fmt.Errorf("%s: %w", each.operation, err)
		}
		r.Steps = append(r.Steps, done)
	}
	return nil
}

// all waits for all of them.
func all(ctx workflow.Context, futures []workflows.Future[gpumux.Resident]) (handles []gpumux.Resident, err error) {
	for _, each := range futures {
		handle, err := each.Get(ctx)
		if err != nil {
			return nil, err
		}
		handles = append(handles, handle)
	}
	return handles, nil
}
