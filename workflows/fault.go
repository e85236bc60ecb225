package workflows

import (
	"errors"
	"strings"

	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// FaultOf finds the fault behind an error of a map, or nil. It works on what a
// client gets from a workflow, too. In the workflow itself errors.As finds the
// *gpumux.Fault as well.
func FaultOf(err error) *gpumux.Fault { return contract.FaultIn(err) }

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
	if fault := contract.FaultTold(err); fault != nil && errors.As(err, &app) {
		message := app.Message() // which may name the item besides
		if message == fault.Error() {
			message = textOf(fault)
		}
		return faultError(message, fault)
	}
	return err
}

// faultError is the error of a fault. SDKs print its type, the fault's kind, behind the
// message, and then the cause: that is where the fault happened, as far as it tells.
func faultError(message string, fault *gpumux.Fault) error {
	return temporal.NewApplicationErrorWithOptions(message, string(fault.Kind), temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{*fault},
		Cause: struct{ origin }{origin{fault}}, // the name of its type would be printed too, so it has none
	})
}

// textOf is the fault's own text without its kind and place, which faultError adds.
func textOf(fault *gpumux.Fault) string {
	bare := *fault
	bare.Slot, bare.Device = "", ""
	return strings.TrimPrefix(bare.Error(), string(bare.Kind)+": ")
}

func errorOf(fault *gpumux.Fault) error { return faultError(textOf(fault), fault) }

func invalid(err error) error {
	return errorOf(&gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: err.Error()})
}

// origin is the cause of a fault's error, in which errors.As finds the fault. It says
// where that happened.
type origin struct{ fault *gpumux.Fault }

func (o origin) Error() string {
	f := o.fault
	return "gpumux" + text.When(f.Task != "", " task %s", f.Task) + text.When(f.Slot != "", " in slot %s", f.Slot) +
		text.When(f.Device != "", " on %s", f.Device) + text.When(f.Host != "", " at %s", f.Host) + text.When(f.PID != 0, ", process %d", f.PID)
}

func (o origin) As(target any) bool {
	fault, wanted := target.(**gpumux.Fault)
	if wanted {
		*fault = o.fault
	}
	return wanted
}

// What the fault that ends a map says of the items that are done.
const (
	stored    = "what has finished is stored: the same map started again runs only the rest"
	unnamed   = "the map named no output, so started again it runs all items"
	inHistory = "results of a map inside a workflow are not stored, so all its items run again"
)

// ended says in the fault that ends a map what becomes of the items that are done.
func (e *engine) ended(err error, done int64) error {
	fault := FaultOf(err)
	var app *temporal.ApplicationError
	if done == 0 || fault == nil || !errors.As(err, &app) {
		return err
	}
	note := kept(e.asked)
	if e.first().parts == "" {
		note = inHistory
	}
	if fault.Hint != "" {
		fault.Hint += "; "
	}
	fault.Hint += note
	return faultError(app.Message()+"; "+note, fault)
}

// kept says what becomes of finished items of gpumux.Map; asked, if its caller named the
// output.
func kept(asked bool) string {
	if asked {
		return stored
	}
	return unnamed
}
