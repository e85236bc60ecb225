package activities

import (
	"errors"
	"syscall"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/store"
)

// retryDelay is the pause before a chunk is tried again after a death. It is short: the
// slot is clean again by then.
const retryDelay = 20 * time.Millisecond

// slotPatience is how long a chunk waits for a slot before it goes back: by then
// the slots are held longer than expected.
const slotPatience = 500 * time.Millisecond

// busy is the error of such a chunk. That is no failure, so nothing is logged.
func busy() error {
	fault := &gpumux.Fault{Kind: gpumux.Canceled, Op: "start", Message: ErrBusy.Error() + "; the chunk goes on elsewhere"}
	return failure(fault, temporal.ApplicationErrorOptions{NextRetryDelay: retryDelay, Category: temporal.ApplicationErrorCategoryBenign})
}

// retry is the error after which Temporal runs the chunk again from its first unfinished
// item.
func retry(fault *gpumux.Fault, delay time.Duration) error {
	return failure(fault, temporal.ApplicationErrorOptions{NextRetryDelay: delay})
}

// final is the error that ends the map.
func final(fault *gpumux.Fault) error {
	return failure(fault, temporal.ApplicationErrorOptions{NonRetryable: true})
}

// failure is a fault as an error of an activity.
func failure(fault *gpumux.Fault, o temporal.ApplicationErrorOptions) error {
	o.Details = []any{*fault}
	return temporal.NewApplicationErrorWithOptions(fault.Error(), string(fault.Kind), o)
}

// badInput is final for an input that can never work.
func badInput(err error, hint string) error {
	return final(&gpumux.Fault{Kind: gpumux.BadInput, Op: "start", Message: err.Error(), Hint: hint})
}

// classify makes an error final if trying again cannot help: mistakes in a file or a
// name, a folder or store of others, wrong keys.
func classify(err error) error {
	switch {
	case errors.As(err, new(*store.SourceError)) || errors.As(err, new(*store.NameError)) || errors.As(err, new(*store.OwnerError)) ||
		errors.As(err, new(*store.KeyError)) || errors.Is(err, syscall.ENAMETOOLONG):
		return badInput(err, "")
	case errors.As(err, new(*objects.DamageError)):
		return badInput(err, "delete it, and put it there again")
	case errors.Is(err, syscall.ENOTDIR):
		return badInput(err, "an object lies where a folder is to be; name another output")
	}
	return err
}

// maxLogged is how many failed items of a chunk the log has.
const maxLogged = 20

// faultLog logs the faults of a chunk of a map.
type faultLog struct {
	log.Logger
	of string
	// logged counts the failed items that the log has.
	logged int
}

// item logs that an item failed. An item that is tried again later has not yet.
func (l *faultLog) item(result gpumux.Result, later bool) {
	message := "item failed"
	if later {
		message = "item raised; it is tried again after a pause"
	}
	switch l.logged++; {
	case l.logged > maxLogged:
		return
	case l.logged == maxLogged:
		message += "; of this chunk no more are told here, the results have them"
	}
	l.Warn(message, l.fields(result.Fault, result.Index)...)
}

// fields are the fields of a log line about a fault, of an item where its index is known.
func (l *faultLog) fields(f *gpumux.Fault, index int64) []any {
	k := []any{"map", l.of}
	if index >= 0 {
		k = append(k, "index", index, "item", f.Item)
	}
	k = append(k, "kind", f.Kind, "slot", f.Slot, "device", f.Device, "pid", f.PID, "fault", f.Error())
	if f.Budget > 0 {
		k = append(k, "budget", f.Budget)
	}
	return k
}
