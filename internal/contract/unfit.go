package contract

import (
	"errors"
	"slices"

	"go.temporal.io/sdk/converter"
)

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
