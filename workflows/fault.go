package workflows

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/payload"
)

// FaultOf finds the fault behind an error of a map or a call, or nil. It works on what a
// client gets from a workflow, too. In the workflow itself errors.As finds the
// *gpumux.Fault as well.
func FaultOf(err error) *gpumux.Fault { return payload.FaultIn(err) }

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
	if fault := payload.FaultTold(err); fault != nil && errors.As(err, &app) {
		return faultError(app.Message(), fault) // which may name the item besides
	}
	return err
}

// faultError is an error of the fault's kind as its type, which SDKs print with the
// message.
func faultError(message string, fault *gpumux.Fault) error {
	if fault == nil {
		fault = &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: message}
	}
	message = strings.TrimPrefix(message, string(fault.Kind)+": ")
	return temporal.NewApplicationErrorWithOptions(message, string(fault.Kind), temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{*fault}, Cause: origin{fault},
	})
}

// invalid is the error for an input that fails validation.
func invalid(err error) error {
	return faultError(err.Error(), &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: err.Error()})
}

// origin is the cause of a map's error, in which errors.As finds the fault. That error
// has the fault's text already, so origin's says where.
type origin struct{ fault *gpumux.Fault }

func (o origin) Error() string {
	text := "gpumux fault"
	if o.fault.Task != "" {
		text += " of task " + o.fault.Task
	}
	if o.fault.Host != "" {
		text += " on " + o.fault.Host
	}
	if o.fault.PID != 0 {
		text += fmt.Sprintf(", process %d", o.fault.PID)
	}
	return text
}

// As is for errors.As with a *gpumux.Fault.
func (o origin) As(target any) bool {
	fault, wanted := target.(**gpumux.Fault)
	if wanted {
		*fault = o.fault
	}
	return wanted
}
