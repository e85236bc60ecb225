package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/recovery"
	"github.com/gpumux/gpumux/internal/store"
)

const (
	// batchItems and batchBytes bound the values that a reduce task is given at once.
	batchItems = 512
	batchBytes = 16 << 20
	// reduceAttempts is how often a reduce is tried when its task process dies.
	reduceAttempts = 3
)

func succeeded(ctx context.Context, s *store.Store, in contract.ReduceInput) iter.Seq2[gpumux.Result, error] {
	return func(yield func(gpumux.Result, error) bool) {
		for _, r := range in.Results {
			if r.Fault == nil && !yield(r, nil) {
				return
			}
		}
		if in.Output == "" {
			return
		}
		for r, err := range s.Results(ctx, in.Output) {
			if err != nil {
				err = fmt.Errorf("read the values to reduce: %w", err)
			}
			if (err != nil || r.Fault == nil) && !yield(r, err) {
				return
			}
		}
	}
}

func (p *Pool) reduce(ctx context.Context, in contract.ReduceInput) (out contract.Reduced, err error) {
	if in.Reduce == "" {
		return out, badInput(errors.New("reduce names no task"), "")
	}
	defer heartbeat(ctx)()
	r := &reducer{Pool: p, ctx: ctx, in: in}
	if in.Edition != gpumux.AnyEdition {
		r.edition = in.Edition
	}
	value, err := r.reduce()
	if err == nil {
		out, err = r.deliver(value)
	}
	attempt := int(activity.GetInfo(ctx).Attempt)
	var fault *gpumux.Fault
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return out, context.Cause(ctx)
	case !errors.As(err, &fault):
		return out, classify(err)
	case fault.Edition != "":
		return out, p.elsewhere(ctx, fault, r.edition, attempt)
	case fault.Blameless && attempt < recovery.MaxBlameless:
		return out, retry(fault, 0)
	case fault.Kind.Deadly() && attempt < reduceAttempts:
		return out, retry(fault, retryDelay)
	}
	return out, final(fault)
}

type reducer struct {
	*Pool
	ctx context.Context
	in  contract.ReduceInput
	// edition is the one that pairs are to run with; empty: any.
	edition string
}

type operand struct {
	contract.Span
	value json.RawMessage
}

// reduce combines a batch of values at a time, each with the result of those before.
func (r *reducer) reduce() (json.RawMessage, error) {
	var batch []operand
	bytes := 0
	for result, err := range succeeded(r.ctx, r.Store, r.in) {
		if err != nil {
			return nil, err
		}
		batch = append(batch, operand{contract.Span{Start: result.Index, End: result.Index + 1}, result.Value})
		if bytes += len(result.Value); len(batch) < batchItems && bytes < batchBytes {
			continue
		}
		if batch, err = r.combine(batch); err != nil {
			return nil, err
		}
		bytes = len(batch[0].value)
	}
	batch, err := r.combine(batch)
	if err != nil || len(batch) == 0 {
		return json.RawMessage("null"), err
	}
	return batch[0].value, nil
}

// combine makes one value of a batch, or none of none. Neighbours are combined until one
// is left, so that a value that grows is passed on seldom.
func (r *reducer) combine(batch []operand) ([]operand, error) {
	for len(batch) > 1 {
		var next []operand
		for i := 0; i+1 < len(batch); i += 2 {
			next = append(next, operand{Span: contract.Span{Start: batch[i].Start, End: batch[i+1].End}})
		}
		if err := r.runPairs(batch, next); err != nil {
			return nil, err
		}
		if len(batch)%2 == 1 {
			next = append(next, batch[len(batch)-1])
		}
		batch = next
	}
	return batch, nil
}

// runPairs runs the task over neighbours in one call, which fills in the values of into.
func (r *reducer) runPairs(values, into []operand) error {
	work := pairs{reducer: r, values: values, into: into}
	err := r.Runner.Run(r.ctx, Call{
		Task: r.in.Reduce, Map: r.in.Map, Edition: r.edition,
		Timeout: time.Duration(r.in.Timeout), Attempts: r.in.Attempts, Arg: r.in.Arg, ArgFile: r.in.ArgFile,
	}, &work)
	if err == nil && work.failed != nil {
		return work.failed
	}
	return err
}

// pairs is the work of one call of a reducer: each item is two neighbours.
type pairs struct {
	calls.Plain
	reducer      *reducer
	values, into []operand
	failed       *gpumux.Fault
}

func (p *pairs) Items() iter.Seq2[calls.Item, error] {
	return func(yield func(calls.Item, error) bool) {
		for i := range p.into {
			pair := append(json.RawMessage{'['}, p.values[2*i].value...)
			pair = append(append(pair, ','), p.values[2*i+1].value...)
			if !yield(calls.Item{Index: int64(i), Value: append(pair, ']')}, nil) {
				return
			}
		}
	}
}

func (p *pairs) Meet(process calls.Process) error {
	if p.reducer.in.Edition != gpumux.AnyEdition {
		p.reducer.edition = process.Edition
	}
	return nil
}

func (p *pairs) Done(result Done) {
	p.into[result.Index].value = result.Value
	if result.Fault != nil && p.failed == nil {
		p.failed = result.Fault
		at := p.values[2*result.Index:]
		p.failed.Op = "reduce"
		p.failed.Message = fmt.Sprintf("reduce %s of items %d to %d with items %d to %d: %s", p.reducer.in.Reduce,
			at[0].Start, at[0].End-1, at[1].Start, at[1].End-1, p.failed.Message)
	}
}

// deliver puts a value that is too large for the history into the store.
func (r *reducer) deliver(value json.RawMessage) (contract.Reduced, error) {
	if len(value) <= gpumux.InlineBytes || r.in.Key == "" && len(value) <= largestResult {
		return contract.Reduced{Value: value}, nil
	}
	if r.in.Key == "" {
		return contract.Reduced{}, tooLarge(r.in.Reduce, len(value))
	}
	return contract.Reduced{URL: r.Store.Objects.Locate(r.in.Key)}, r.Store.Objects.Put(r.ctx, r.in.Key, value, objects.Creation{})
}
