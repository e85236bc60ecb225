package starter

import (
	"errors"
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter/fleet"
)

// EndedError says that a run ended without completing.
type EndedError struct {
	ID string
	// Status is Failed, Canceled or Terminated.
	Status Status
	// Fault says why a run failed. Its Kind is empty when the failure was none of gpumux's.
	Fault gpumux.Fault
	Err   error
}

// Error is one line with the fault, or with how to go on.
func (e *EndedError) Error() string {
	const goOn = "; start it again to go on with the items that have no result"
	switch of := e.Fault.Of(); {
	case e.Status == Canceled:
		return "map " + e.ID + " was cancelled" + goOn
	case e.Status == Terminated:
		return "map " + e.ID + " was terminated" + goOn
	case e.Fault.Kind == "":
		return fmt.Sprintf("map %s failed: %s", e.ID, e.Fault.Message)
	case of != "":
		return fmt.Sprintf("map %s failed at %s: %s", e.ID, of, e.Fault.Error())
	}
	return fmt.Sprintf("map %s failed: %s", e.ID, e.Fault.Error())
}

// Unwrap gives Temporal's error.
func (e *EndedError) Unwrap() error { return e.Err }

// NotFoundError says that there is no such map.
type NotFoundError struct {
	ID string
	// Known are IDs of the newest maps.
	Known []string
}

// Error lists what exists.
func (e *NotFoundError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("there is no map %q, nor any other; start one with `gpumux map`", e.ID)
	}
	return fmt.Sprintf("there is no map %q; the newest are %s; `gpumux ls` lists all", e.ID, strings.Join(e.Known, ", "))
}

// ended makes an EndedError of a workflow's error, and leaves others as they are.
func ended(id string, err error) error {
	if !errors.As(err, new(*temporal.WorkflowExecutionError)) {
		return fleet.WithKeysHint(err)
	}
	var timeout *temporal.TimeoutError
	var application *temporal.ApplicationError
	e := &EndedError{ID: id, Status: Failed, Err: err}
	switch {
	case errors.As(err, new(*temporal.TerminatedError)):
		e.Status = Terminated
	case errors.As(err, &application):
		e.Fault = faultOf(application)
	case errors.As(err, new(*temporal.CanceledError)):
		e.Status = Canceled
	case errors.As(err, &timeout):
		e.Fault = gpumux.Fault{Kind: gpumux.Timeout, Message: "the map's workflow took longer than it was given",
			Hint: "start it again to go on with the items that have no result"}
		if timeout.TimeoutType() != enumspb.TIMEOUT_TYPE_START_TO_CLOSE {
			e.Fault.Message = "the map's workflow timed out: " + timeout.TimeoutType().String()
		}
	default:
		e.Fault.Message = err.Error()
	}
	return e
}

// faultOf reads the fault that an application error carries as its first detail.
func faultOf(e *temporal.ApplicationError) gpumux.Fault {
	var fault gpumux.Fault
	if e.HasDetails() {
		if err := e.Details(&fault); err == nil && fault.Kind != "" {
			return fault
		}
	}
	return gpumux.Fault{Message: e.Message()}
}
