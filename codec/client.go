package codec

import (
	"cmp"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
)

// Apply makes a client, and the workers on it, encode everything that Temporal keeps,
// with messages and stacks of failures. A nil codec changes nothing.
func Apply(o *client.Options, c converter.PayloadCodec) {
	if c == nil {
		return
	}
	o.DataConverter = Converter(o.DataConverter, c)
	o.FailureConverter = Failures(o.DataConverter)
}

// Converter is a data converter with a codec; both may be nil.
func Converter(parent converter.DataConverter, c converter.PayloadCodec) converter.DataConverter {
	parent = cmp.Or(parent, converter.GetDefaultDataConverter())
	if c == nil {
		return parent
	}
	return converter.NewCodecDataConverter(parent, c)
}

// Failures is a failure converter that puts messages and stacks into payloads alone.
func Failures(data converter.DataConverter) converter.FailureConverter {
	return temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{DataConverter: data, EncodeCommonAttributes: true})
}
