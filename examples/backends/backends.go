package main

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// places says in which pools the two products run, and the second device of one slot.
type places struct {
	Left, Right, Second string
}

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

// Backends does the same operations on the chain first, cpu and on the CPU alone, and
// then two products and their sum by hand.
func Backends(ctx workflow.Context, p places) (r report, err error) {
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
	if err != nil {
		return r, err
	}
	err = lease(ctx, p.Left, func(ctx workflow.Context, left backend) error {
		return lease(ctx, p.Right, func(ctx workflow.Context, right backend) error {
			return r.products(ctx, left, right, p.Second)
		})
	})
	return r, err
}

// products computes A·B on one slot beside C·D on another, brings them together, and adds
// them there on two devices of one process.
func (r *report) products(ctx workflow.Context, left, right backend, second string) error {
	var futures []workflows.Future[gpumux.Resident]
	for seed, b := range []backend{left, left, right, right} {
		futures = append(futures, b.start(ctx, "load", map[string]int{"seed": seed, "n": n}))
	}
	loaded, err := wait(ctx, futures)
	if err != nil {
		return err
	}
	products, err := wait(ctx, []workflows.Future[gpumux.Resident]{left.start(ctx, "product", loaded[:2]), right.start(ctx, "product", loaded[2:])})
	if err != nil {
		return err
	}
	moved, err := workflows.Move(ctx, products[1], right.slot, left.slot)
	if err != nil {
		return err
	}
	r.Copies++
	sums, err := wait(ctx, []workflows.Future[gpumux.Resident]{
		left.start(ctx, "add", []gpumux.Resident{products[0], moved}),
		left.start(ctx, "add", []gpumux.Resident{products[0].On(second), moved.On(second)}),
	})
	if err != nil {
		return err
	}
	handles := append(products, sums...)
	for i, operation := range []string{"left", "right", "sum", "sum after On"} {
		b := left
		if operation == "right" {
			b = right
		}
		if err := r.add(ctx, step{Chain: "hand", Operation: operation}, b, handles[i]); err != nil {
			return fmt.Errorf("%s: %w", operation, err)
		}
	}
	return nil
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

// wait waits for all of them.
func wait(ctx workflow.Context, futures []workflows.Future[gpumux.Resident]) (handles []gpumux.Resident, err error) {
	for _, each := range futures {
		handle, err := each.Get(ctx)
		if err != nil {
			return nil, err
		}
		handles = append(handles, handle)
	}
	return handles, nil
}
