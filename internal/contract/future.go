package contract

import (
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// Get waits for an activity or a child workflow and reads what it returned into a value,
// or nothing into nil. Its error is theirs, or that of a value that does not fit.
func Get(ctx workflow.Context, f workflow.Future, value any) error {
	err := f.Get(ctx, nil)
	if err == nil && value != nil {
		err = f.Get(ctx, value)
	}
	return unlessCodec(err)
}

// unlessCodec returns an error, but fails the workflow's task if it is one of the codec
// of this worker's data converter, which may be away: the server tries the task again
// until the codec answers. As a part of the workflow's state the error would differ from
// what a replay finds, and the workflow would hang.
func unlessCodec(err error) error {
	if err != nil && !fromTemporal(err) && !Unfit(err) {
		panic(fmt.Errorf("encode or decode payloads: %w; the workflow task is tried again", err))
	}
	return err
}

// fromTemporal reports whether an error came from Temporal. All others of futures are of
// data converters.
func fromTemporal(err error) bool {
	for _, kind := range []any{
		new(*temporal.ActivityError), new(*temporal.ChildWorkflowExecutionError), new(*temporal.CanceledError), new(*temporal.ApplicationError),
		new(*temporal.TimeoutError), new(*temporal.TerminatedError), new(*temporal.ServerError), new(*temporal.PanicError),
		new(*temporal.NamespaceNotFoundError),
	} {
		if errors.As(err, kind) {
			return true
		}
	}
	return temporal.IsWorkflowExecutionAlreadyStartedError(err) || errors.Is(err, temporal.ErrNoData)
}

// ofValues are the errors of data converters that another try does not mend.
var ofValues = []error{
	converter.ErrUnableToDecode, converter.ErrUnableToEncode, converter.ErrEncodingIsNotSupported, converter.ErrEncodingIsNotSet,
	converter.ErrMetadataIsNotSet, converter.ErrUnableToFindConverter, converter.ErrUnableToSetValue, converter.ErrTypeNotImplementProtoMessage,
	converter.ErrTypeIsNotByteSlice, converter.ErrValuePtrIsNotPointer, converter.ErrValuePtrMustConcreteType,
}

// Unfit reports whether a data converter failed because of the payload or the value.
// Every other error is one of its codec, and may pass.
func Unfit(err error) bool {
	return slices.ContainsFunc(ofValues, func(each error) bool { return errors.Is(err, each) })
}

// FaultIn finds the fault in an error of Temporal, or nil.
func FaultIn(err error) *gpumux.Fault {
	fault, _ := faultIn(err)
	return fault
}

// FaultTold is FaultIn for what a workflow decides by; see Get.
func FaultTold(err error) *gpumux.Fault {
	fault, wrong := faultIn(err)
	_ = unlessCodec(wrong)
	return fault
}

// encodedMessage stands for a message that the failure converter did not decode.
const encodedMessage = "Encoded failure"

// faultIn also returns the error of a converter that kept it from finding a fault, or
// from reading its message.
func faultIn(err error) (fault *gpumux.Fault, wrong error) {
	for app := (*temporal.ApplicationError)(nil); errors.As(err, &app); err = app.Unwrap() {
		if !app.HasDetails() {
			continue
		}
		var found gpumux.Fault
		if err := app.Details(&found); err != nil {
			wrong = err
		} else if found.Kind != "" {
			if wrong = nil; app.Message() == encodedMessage {
				wrong = errors.New("the message of a failure could not be decoded")
			}
			return &found, wrong
		}
	}
	return nil, wrong
}
