package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
)

// retryDelay is the pause before a chunk is tried again after a death. It is short: the
// slot is clean again by then.
const retryDelay = 20 * time.Millisecond

// slotPatience is how long a chunk waits for a slot before it goes back: by then
// the slots are held longer than expected.
const slotPatience = 500 * time.Millisecond

// ending is why an activity ended before its work was done. It is Temporal's error only
// at the border, in checked.
type ending struct {
	fault *gpumux.Fault
	// again: another attempt follows, after delay or, where that is 0, the retry policy's
	// growing pause.
	again bool
	delay time.Duration
	// quiet: it is no failure, or has been logged, and so the SDK logs nothing.
	quiet bool
}

func (e *ending) Error() string { return e.fault.Error() }

func busy() error {
	return quietly(retry(&gpumux.Fault{Kind: gpumux.FaultCanceled, Op: "start", Message: ErrBusy.Error() + "; the chunk goes on elsewhere"}, retryDelay))
}

// retry returns the error after which a chunk runs again, but for what is stored.
func retry(fault *gpumux.Fault, delay time.Duration) error {
	return &ending{fault: fault, again: true, delay: delay}
}

// final returns the error that ends the map.
func final(fault *gpumux.Fault) error { return &ending{fault: fault} }

// failure turns an ending into an error of an activity, and leaves other errors as they
// are.
func failure(err error) error {
	e, ok := errors.AsType[*ending](err)
	if !ok {
		return err
	}
	o := temporal.ApplicationErrorOptions{NextRetryDelay: e.delay, NonRetryable: !e.again, Details: []any{*e.fault}}
	if e.quiet {
		o.Category = temporal.ApplicationErrorCategoryBenign
	}
	return temporal.NewApplicationErrorWithOptions(e.Error(), string(e.fault.Kind), o)
}

// quietly is an ending that the SDK does not log.
func quietly(err error) error {
	if e, ok := errors.AsType[*ending](err); ok {
		e.quiet = true
	}
	return err
}

func badInput(err error, hint string) error {
	return final(&gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: err.Error(), Hint: hint})
}

// classify makes an error final if trying again cannot help: mistakes in a file or a
// name, a folder or store of others.
func classify(err error) error {
	switch {
	case errors.As(err, new(*gpumux.SourceError)) || errors.As(err, new(*objects.NameError)) || errors.As(err, new(*store.OwnerError)) ||
		errors.Is(err, syscall.ENAMETOOLONG):
		return badInput(err, "")
	case errors.As(err, new(*objects.DamageError)):
		return badInput(err, "delete it, and put it there again")
	case errors.Is(err, syscall.ENOTDIR):
		return badInput(err, "an object lies where a folder is to be; name another output")
	}
	return err
}

const maxLogged = 20

type faultLog struct {
	log.Logger
	mapID  string
	logged int
}

func (l *faultLog) item(result gpumux.Result, later bool) {
	message := "item failed"
	if later {
		message = "item raised; it is tried again after a pause"
	}
	switch l.logged++; {
	case l.logged > maxLogged:
		return
	case l.logged == maxLogged:
		message += "; further ones of this chunk are not logged, the results have them"
	}
	l.Warn(message, l.fields(result.Fault, result.Index)...)
}

// fields returns the fields of a log line about a fault. An index below 0 is unknown.
func (l *faultLog) fields(f *gpumux.Fault, index int64) []any {
	k := []any{"map", l.mapID}
	if index >= 0 {
		k = append(k, "index", index, "item", f.Item)
	}
	k = append(k, "task", f.Task, "kind", f.Kind, "slot", f.Slot, "device", f.Device, "pid", f.PID, "fault", f.Error())
	if f.Budget > 0 {
		k = append(k, "budget", f.Budget)
	}
	return k
}

// shortText is how many bytes of what an item printed travel in a history, and of its
// traceback. Messages are short.
const shortText = 1000

func excerpt(r gpumux.Result) gpumux.Result {
	r.Printed = endOf(r.Printed)
	if r.Fault != nil {
		fault := *r.Fault
		fault.Traceback, fault.Tail = endOf(fault.Traceback), endOf(fault.Tail)
		r.Fault = &fault
	}
	return r
}

func endOf(text string) string {
	if len(text) <= shortText {
		return text
	}
	return fmt.Sprintf("[the last %d of %d bytes]\n", shortText, len(text)) + strings.ToValidUTF8(text[len(text)-shortText:], "")
}

// checked is an activity that reads and validates its input before it calls f, and whose
// errors Temporal understands. A wrong input is a final error. Every activity with an
// input is registered through it.
func checked[In, Out any](f func(context.Context, In) (Out, error)) func(context.Context, converter.RawValue) (Out, error) {
	return func(ctx context.Context, raw converter.RawValue) (out Out, err error) {
		defer func() { err = failure(err) }()
		var in In
		if err := contract.DecodePayload(raw, &in); err != nil {
			return out, badInput(err, "")
		}
		return f(ctx, in)
	}
}
