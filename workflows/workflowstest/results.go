package workflowstest

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// edition stands for gpumux.FindEdition.
func (t *Tasks) edition(_ context.Context, in contract.EditionInput) (contract.Edition, error) {
	_, err := t.each(in.Task, nil)
	return contract.Edition{Edition: "test"}, err
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
