package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
)

// FaultOf finds the fault behind an error of a map, or nil.
func FaultOf(err error) *gpumux.Fault {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || !app.HasDetails() {
		return nil
	}
	var fault gpumux.Fault
	if app.Details(&fault) != nil || fault.Kind == "" {
		return nil
	}
	return &fault
}

// unwrapFault removes the activity's wrapping from an error, so that a failed map says
// what happened in its first line.
func unwrapFault(err error) error {
	if err == nil || temporal.IsCanceledError(err) {
		return err
	}
	if _, bare := err.(*temporal.ApplicationError); bare {
		return err
	}
	var app *temporal.ApplicationError
	if fault := FaultOf(err); fault != nil && errors.As(err, &app) {
		return faultError(app.Message(), fault) // which may name the item besides
	}
	return err
}

func faultError(message string, fault *gpumux.Fault) error {
	if fault == nil {
		fault = &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: message}
	}
	return temporal.NewApplicationErrorWithOptions(message, string(fault.Kind), temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{*fault},
	})
}

// invalid is the error for an input that fails validation.
func invalid(err error) error {
	return faultError(err.Error(), &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: err.Error()})
}
