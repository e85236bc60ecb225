package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities/number"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
)

const (
	// inlinePartial is the most bytes of a partial that travels through the history.
	inlinePartial = 4 << 10
	// blockItems and blockBytes bound the values that a reduce holds at once.
	blockItems = 512
	blockBytes = 16 << 20
	// reduceAttempts is how often a stretch is tried whose task process died.
	reduceAttempts = 3
)

// reducer is one call of Reduce. Runner is nil for a reduce of gpumux's own.
type reducer struct {
	ctx    context.Context
	store  *store.Store
	runner Runner
	in     contract.ReduceInput
	// code is Pool.Edition, edition the one that pairs are to run with.
	code    func(task string) (string, error)
	edition string
}

// Reduce runs a reduce of gpumux's own.
func (l *Light) Reduce(ctx context.Context, in contract.ReduceInput) (contract.Partial, error) {
	defer heartbeat(ctx)()
	if !contract.OwnReduce(in.Reduce) {
		return contract.Partial{}, badInput(fmt.Errorf("reduce %q is a task and belongs on the queue of a pool", in.Reduce), "")
	}
	partial, err := (&reducer{ctx: ctx, store: l.Store, in: in}).reduceNumbers()
	return partial, classify(err)
}

// Reduce runs a reduce that is a task, in slots.
func (p *Pool) Reduce(ctx context.Context, in contract.ReduceInput) (contract.Partial, error) {
	r := &reducer{ctx: ctx, store: p.Store, runner: p.Runner, in: in, code: p.Edition, edition: in.Edition}
	if err := p.doubted(ctx, func() { activity.RecordHeartbeat(ctx) }); err != nil {
		return contract.Partial{}, err
	}
	defer heartbeat(ctx)()
	partial, err := r.reduceTask()
	var fault *gpumux.Fault
	switch {
	case err == nil:
		return partial, nil
	case ctx.Err() != nil:
		return partial, context.Cause(ctx)
	case !errors.As(err, &fault):
		return partial, classify(err)
	case fault.Edition != "":
		return partial, p.elsewhere(ctx, fault, int(activity.GetInfo(ctx).Attempt))
	case fault.Blameless && activity.GetInfo(ctx).Attempt < mostSpared:
		return partial, retry(fault, 0)
	case fault.Kind.Deadly() && activity.GetInfo(ctx).Attempt < reduceAttempts:
		return partial, retry(fault, retryDelay)
	}
	return partial, final(fault)
}

// span is the stretch that the result is of.
func (r *reducer) span() gpumux.Span {
	if n := len(r.in.Partials); n > 0 {
		return gpumux.Span{Start: r.in.Partials[0].Start, End: r.in.Partials[n-1].End}
	}
	return r.in.Span
}

// each calls f with the value of every item that succeeded, in order.
func (r *reducer) each(f func(index int64, value json.RawMessage) error) error {
	for _, result := range r.in.Results {
		if result.Fault == nil {
			if err := f(result.Index, result.Value); err != nil {
				return err
			}
		}
	}
	if r.in.Source == nil {
		return nil
	}
	for line, err := range r.store.Items(r.ctx, *r.in.Source, r.in.Start, r.in.End) {
		var result gpumux.Result
		if err == nil {
			result, err = store.ParseResult(line)
		}
		if err == nil && result.Fault == nil {
			err = f(result.Index, result.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reduceNumbers computes sum, mean, min, max and count in constant memory.
func (r *reducer) reduceNumbers() (contract.Partial, error) {
	n := number.New(r.in.Reduce)
	out := contract.Partial{Span: r.span()}
	wrong := func(what string, err error) error {
		return final(&gpumux.Fault{Kind: gpumux.TaskError, Op: "reduce", Task: r.in.Reduce, Message: what + ": " + err.Error(),
			Hint: "let the task return a number in range, or reduce with a task of your own; the items' results are kept"})
	}
	for _, p := range r.in.Partials {
		if err := n.Merge(p.Count, p.Value); err != nil {
			return out, wrong(fmt.Sprintf("reduce %s of items %d to %d", r.in.Reduce, p.Start, p.End-1), err)
		}
	}
	var mistake error
	err := r.each(func(index int64, value json.RawMessage) error {
		if err := n.Add(value); err != nil {
			mistake = wrong(fmt.Sprintf("reduce %s at item %d, whose value is %.60s", r.in.Reduce, index, value), err)
			return mistake
		}
		return nil
	})
	if mistake != nil {
		return out, mistake
	}
	if err != nil {
		return out, fmt.Errorf("read the values to reduce: %w", err)
	}
	out.Count = n.Count()
	if r.in.Final {
		out.Value, err = n.Value()
	} else if n.Count() > 0 {
		out.Value, err = n.State()
	}
	if err != nil {
		return out, wrong("reduce "+r.in.Reduce, err)
	}
	return out, nil
}

// operand is a value and the items that it was made of.
type operand struct {
	gpumux.Span
	value json.RawMessage
}

// reduceTask combines values pairwise in slots, a block of them at a time. The first of a block is the value of the blocks before.
func (r *reducer) reduceTask() (contract.Partial, error) {
	out := contract.Partial{Span: r.span()}
	if r.in.Source == nil && r.in.Results == nil && r.in.Partials == nil && !r.in.Final {
		err := r.combine(nil, nil) // finds out whether the task is known
		if err == nil && r.code != nil {
			out.Edition, err = r.code(r.in.Reduce)
		}
		return out, err
	}
	var block []operand
	bytes := 0
	settle := func() (err error) {
		block, err = r.tree(block)
		bytes = 0
		for _, one := range block {
			bytes += len(one.value)
		}
		return err
	}
	take := func(o operand) error {
		block = append(block, o)
		if bytes += len(o.value); len(block) < blockItems && bytes < blockBytes {
			return nil
		}
		return settle()
	}
	for _, p := range r.in.Partials {
		if p.Count == 0 {
			continue
		}
		value, err := r.load(p)
		if err == nil {
			err = take(operand{Span: p.Span, value: value})
		}
		if err != nil {
			return out, err
		}
		out.Count += p.Count
	}
	err := r.each(func(index int64, value json.RawMessage) error {
		out.Count++
		return take(operand{Span: gpumux.Span{Start: index, End: index + 1}, value: value})
	})
	if err == nil {
		err = settle()
	}
	switch {
	case err != nil:
		return out, err
	case len(block) > 0:
		return r.save(out, block[0].value)
	case r.in.Final:
		return r.save(out, json.RawMessage("null"))
	}
	return out, nil
}

// tree combines the operands level by level until one is left, or none of none. All pairs of a level are one call.
func (r *reducer) tree(operands []operand) ([]operand, error) {
	level := append([]operand(nil), operands...)
	for len(level) > 1 {
		pairs := level[:len(level)/2*2]
		next := make([]operand, 0, len(level)/2+1)
		for i := 0; i < len(pairs); i += 2 {
			next = append(next, operand{Span: gpumux.Span{Start: pairs[i].Start, End: pairs[i+1].End}})
		}
		if err := r.combine(pairs, next); err != nil {
			return nil, err
		}
		if len(level)%2 == 1 {
			next = append(next, level[len(level)-1])
		}
		level = next
	}
	return level, nil
}

// combine runs the task over neighbouring pairs in one call.
func (r *reducer) combine(pairs, into []operand) error {
	var failed *gpumux.Fault
	err := r.runner.Run(r.ctx, Call{
		Task: r.in.Reduce, Map: r.in.Map, Edition: r.edition, Ran: func(edition string) { r.edition = edition },
		Timeout: time.Duration(r.in.Timeout), Attempts: r.in.Attempts, Arg: r.in.Arg,
		Items: func(yield func(gpumux.Item, error) bool) {
			for i := 0; i < len(pairs); i += 2 {
				pair := make(json.RawMessage, 0, len(pairs[i].value)+len(pairs[i+1].value)+3)
				pair = append(append(append(pair, '['), pairs[i].value...), ',')
				pair = append(append(pair, pairs[i+1].value...), ']')
				if !yield(gpumux.Item{Index: int64(i / 2), Value: pair}, nil) {
					return
				}
			}
		},
		Done: func(result Done) {
			into[result.Index].value = result.Value
			if result.Fault != nil && failed == nil {
				failed = result.Fault
				at := pairs[2*result.Index:]
				failed.Op = "reduce"
				failed.Message = fmt.Sprintf("reduce %s of items %d to %d with items %d to %d: %s", r.in.Reduce,
					at[0].Start, at[0].End-1, at[1].Start, at[1].End-1, failed.Message)
			}
		},
	})
	if err == nil && failed != nil {
		return failed
	}
	return err
}

// load is the value of a partial.
func (r *reducer) load(p contract.Partial) (json.RawMessage, error) {
	if p.Key == "" {
		return p.Value, nil
	}
	body, err := r.store.Read(r.ctx, p.Key, 0, -1)
	if err != nil {
		return nil, fmt.Errorf("read a part of the reduce: %w", err)
	}
	defer body.Close()
	value, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read a part of the reduce: %w", err)
	}
	return value, nil
}

// save puts a value into the partial, or into the store if it is too large for the history.
func (r *reducer) save(out contract.Partial, value json.RawMessage) (contract.Partial, error) {
	most, key := inlinePartial, fmt.Sprintf("%s/%012d-%012d.json", r.in.Folder, out.Start, out.End)
	if r.in.Final {
		most, key = gpumux.InlineBytes, r.in.Folder+"/reduced.json"
	}
	if len(value) <= most {
		out.Value = value
		return out, nil
	}
	w, err := r.store.Create(r.ctx, key)
	if err != nil {
		return out, err
	}
	defer w.Abort()
	if _, err := w.Write(value); err != nil {
		return out, err
	}
	out.Key = r.store.Locate(key)
	return out, w.Close()
}
