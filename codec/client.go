package codec

import (
	"cmp"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
)

// Apply makes a client, and the workers on it, encode everything that Temporal keeps,
// with messages and stacks of failures. A nil codec changes nothing. The codec may be one
// that is away at times, such as converter.NewRemotePayloadCodec: see Converter.
func Apply(o *client.Options, c converter.PayloadCodec) {
	if c == nil {
		return
	}
	o.DataConverter = Converter(o.DataConverter, c)
	o.FailureConverter = Failures(o.DataConverter)
}

// Converter is a data converter with a codec; both may be nil. With the SDK's own
// (converter.NewCodecDataConverter, NewRemoteDataConverter) a workflow fails with the
// first input, result or activity that the codec cannot encode or decode. With this one
// the workflow's task fails, and the server tries it again until the codec answers,
// unless the worker has the WorkflowPanicPolicy FailWorkflow. An error of the codec that
// no try can mend should wrap converter.ErrUnableToDecode; it counts as one of the value.
func Converter(parent converter.DataConverter, c converter.PayloadCodec) converter.DataConverter {
	parent = cmp.Or(parent, converter.GetDefaultDataConverter())
	if c == nil {
		return parent
	}
	return newDataConverter(parent, c)
}
