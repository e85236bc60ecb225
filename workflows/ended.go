package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"
)

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
