package workflowstest

import (
	"context"
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/numbers"
)

func (t *Tasks) registerResults(env *testsuite.TestWorkflowEnvironment) {
	env.RegisterActivityWithOptions(t.page, activity.RegisterOptions{Name: contract.ReadPage})
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.ReduceInput) (out contract.Reduced, err error) {
		value, fault := t.reduce(in.Reduce, in.Results)
		if fault != nil {
			err = failed(fault)
		}
		return contract.Reduced{Value: value}, err
	}, activity.RegisterOptions{Name: contract.Reduce})
	env.RegisterActivityWithOptions(func(_ context.Context, in contract.EditionInput) (contract.Edition, error) {
		_, err := t.each(in.Task, nil)
		return contract.Edition{Edition: "test"}, err
	}, activity.RegisterOptions{Name: contract.FindEdition})
}

// page stands for gpumux.ReadPage. Positions are indices of results.
func (t *Tasks) page(_ context.Context, in contract.PageInput) (page contract.Page, err error) {
	if err := in.Validate(); err != nil {
		return page, refused(err.Error())
	}
	all := t.Results(in.Output)
	if all == nil || in.From > int64(len(all)) {
		return page, refused(fmt.Sprintf("no map of this test has results at %d of %q", in.From, in.Output))
	}
	if page.Results = all[in.From:]; in.Limit > 0 && in.Limit < len(page.Results) {
		page.Results, page.Next = page.Results[:in.Limit], in.From+int64(in.Limit)
	}
	return page, nil
}

// reduce makes one value of results, as a worker does.
func (t *Tasks) reduce(reduce string, results []gpumux.Result) (value json.RawMessage, _ *gpumux.Fault) {
	own, value := numbers.New(reduce), json.RawMessage("null")
	wrong := func(index int64, what any) (json.RawMessage, *gpumux.Fault) {
		return nil, &gpumux.Fault{Kind: gpumux.FaultTaskError, Op: "reduce", Task: reduce, Message: fmt.Sprintf("reduce %s at item %d: %v", reduce, index, what)}
	}
	first := true
	for _, r := range results {
		switch {
		case r.Fault != nil:
		case contract.OwnReduce(reduce):
			if err := own.Add(r.Value); err != nil {
				return wrong(r.Index, err)
			}
		case first:
			value, first = r.Value, false
		default:
			combined, err := t.each(reduce, []json.RawMessage{fmt.Appendf(nil, "[%s,%s]", value, r.Value)})
			if err != nil {
				return wrong(r.Index, err)
			}
			if value = combined[0].Value; combined[0].Fault != nil {
				return wrong(r.Index, combined[0].Fault)
			}
		}
	}
	if !contract.OwnReduce(reduce) {
		return value, nil
	}
	value, err := own.Value()
	if err != nil {
		return wrong(int64(len(results)), err)
	}
	return value, nil
}

// failed is the error that ends a map or a call, as that of a worker.
func failed(fault *gpumux.Fault) error {
	return temporal.NewApplicationErrorWithOptions(fault.Error(), string(fault.Kind), temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{*fault},
	})
}

// refused ends the map, as a worker's bad_input does.
func refused(what string) error {
	return failed(&gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: what})
}
