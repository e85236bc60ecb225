// Package codec passes what Temporal keeps of a Go service through a payload codec, such
// as one that encrypts it, as the workers do with theirs.
//
// It owns what happens in a workflow while a codec fails. It has no codec of its own and
// never logs a payload. Nothing runs between calls.
package codec

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
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

// dataConverter is a data converter with a codec, which is strict in workflows.
type dataConverter struct {
	converter.DataConverter // the parent with the codec
	parent                  converter.DataConverter
	codec                   converter.PayloadCodec
}

var (
	_ converter.ContextAware                          = dataConverter{}
	_ converter.DataConverterWithSerializationContext = dataConverter{}
)

func newDataConverter(parent converter.DataConverter, c converter.PayloadCodec) dataConverter {
	return dataConverter{converter.NewCodecDataConverter(parent, c), parent, c}
}

// WithWorkflowContext is for what a workflow encodes and decodes. A codec may take longer
// there than workflow code, up to the timeout of the workflow's task.
func (d dataConverter) WithWorkflowContext(ctx workflow.Context) converter.DataConverter {
	patient := workflow.DataConverterWithoutDeadlockDetection(converter.NewCodecDataConverter(d.parent, strict{d.codec}))
	return patient.(converter.ContextAware).WithWorkflowContext(ctx)
}

// WithContext is for activities, which return the error and are tried again.
func (d dataConverter) WithContext(context.Context) converter.DataConverter { return d }

// WithSerializationContext tells parent and codec what the payload belongs to.
func (d dataConverter) WithSerializationContext(belongs converter.SerializationContext) converter.DataConverter {
	c := d.codec
	if aware, ok := c.(converter.PayloadCodecWithSerializationContext); ok {
		c = aware.WithSerializationContext(belongs)
	}
	return newDataConverter(converter.WithDataConverterSerializationContext(d.parent, belongs), c)
}

// strict is a codec in a workflow: the SDK fails the workflow's task when it panics. An
// error would be one of the workflow, and stay when the codec is back.
type strict struct{ converter.PayloadCodec }

// Encode panics where the codec fails.
func (s strict) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	encoded, err := s.PayloadCodec.Encode(payloads)
	if err != nil {
		panic(fmt.Errorf("encode payloads: %w; the workflow task is tried again", err))
	}
	return encoded, nil
}

// Decode panics where the codec fails and may yet succeed.
func (s strict) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	decoded, err := s.PayloadCodec.Decode(payloads)
	if err != nil && !errors.Is(err, converter.ErrUnableToDecode) {
		panic(fmt.Errorf("decode payloads: %w; the workflow task is tried again", err))
	}
	return decoded, err
}

// Failures is a failure converter that puts messages and stacks into payloads alone.
func Failures(data converter.DataConverter) converter.FailureConverter {
	return failures{temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{DataConverter: data, EncodeCommonAttributes: true}), false}
}

// failures is a failure converter whose codec may fail. The SDK's panics then, and the
// failure would reach nobody.
type failures struct {
	converter.FailureConverter
	// lasting is for failures that stay in a history: the panic fails the workflow's task.
	lasting bool
}

var _ converter.FailureConverterWithSerializationContext = failures{}

// WithSerializationContext tells a workflow's own failures from those of activities and
// of tasks, which are tried again.
func (f failures) WithSerializationContext(belongs converter.SerializationContext) converter.FailureConverter {
	_, f.lasting = belongs.(converter.WorkflowSerializationContext)
	return f
}

// ErrorToFailure leaves out what the codec does not encode.
func (f failures) ErrorToFailure(err error) (converted *failure.Failure) {
	if !f.lasting {
		defer func() {
			if recover() != nil {
				// Nothing of the error is encoded, and it may be final.
				converted = temporal.GetDefaultFailureConverter().ErrorToFailure(temporal.NewApplicationError(
					"the codec failed, so the error that happened cannot be told; the worker's log has both", "CodecError"))
			}
		}()
	}
	return f.FailureConverter.ErrorToFailure(err)
}
