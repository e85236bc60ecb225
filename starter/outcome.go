package starter

import (
	"errors"
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter/connect"
)

// MapFailed says that a map as a whole failed: its input could not work, or it was to stop at the first failed item.
type MapFailed struct {
	ID string
	// Fault is what went wrong. Its Kind is empty when the failure was none of gpumux's own.
	Fault gpumux.Fault
	Err   error
}

// Error is one line with the fault.
func (e *MapFailed) Error() string {
	if e.Fault.Kind == "" {
		return fmt.Sprintf("map %s failed: %s", e.ID, e.Fault.Message)
	}
	if of := e.Fault.Of(); of != "" {
		return fmt.Sprintf("map %s failed at %s: %s", e.ID, of, e.Fault.Error())
	}
	return fmt.Sprintf("map %s failed: %s", e.ID, e.Fault.Error())
}

// Unwrap gives Temporal's error.
func (e *MapFailed) Unwrap() error { return e.Err }

// Canceled says that a map was cancelled.
type Canceled struct{ ID string }

// Error says how to go on.
func (e *Canceled) Error() string {
	return fmt.Sprintf("map %s was cancelled; start it again to go on with the items that have no result", e.ID)
}

// Terminated says that a map was ended from outside, without its own doing.
type Terminated struct{ ID string }

// Error says how to go on.
func (e *Terminated) Error() string {
	return fmt.Sprintf("map %s was terminated; start it again to go on with the items that have no result", e.ID)
}

// NotFound says that there is no such map.
type NotFound struct {
	ID string
	// Known are IDs of the newest maps.
	Known []string
}

// Error lists what exists.
func (e *NotFound) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("there is no map %q, nor any other; start one with `gpumux map`", e.ID)
	}
	return fmt.Sprintf("there is no map %q; the newest are %s; `gpumux ls` lists all", e.ID, strings.Join(e.Known, ", "))
}

// ended turns the error of a workflow that is over into one of the types above. Errors of the connection stay as they are.
func ended(id string, err error) error {
	if !errors.As(err, new(*temporal.WorkflowExecutionError)) {
		return connect.WithKeysHint(err)
	}
	var timeout *temporal.TimeoutError
	var application *temporal.ApplicationError
	failed := &MapFailed{ID: id, Err: err}
	switch {
	case errors.As(err, new(*temporal.TerminatedError)):
		return &Terminated{ID: id}
	case errors.As(err, &application):
		failed.Fault = faultOf(application)
	case errors.As(err, new(*temporal.CanceledError)):
		return &Canceled{ID: id}
	case errors.As(err, &timeout):
		failed.Fault = gpumux.Fault{Kind: gpumux.Timeout, Message: "the map's workflow took longer than it was given",
			Hint: "start it again to go on with the items that have no result"}
		if timeout.TimeoutType() != enumspb.TIMEOUT_TYPE_START_TO_CLOSE {
			failed.Fault.Message = "the map's workflow timed out: " + timeout.TimeoutType().String()
		}
	default:
		failed.Fault.Message = err.Error()
	}
	return failed
}

// faultOf reads the fault that an application error carries: its type is the kind, its first detail the fault.
func faultOf(e *temporal.ApplicationError) gpumux.Fault {
	var fault gpumux.Fault
	if e.HasDetails() {
		if err := e.Details(&fault); err == nil && fault.Kind != "" {
			return fault
		}
	}
	return gpumux.Fault{Message: e.Message()}
}
