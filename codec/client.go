package codec

import (
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
)

// Apply makes a client, and the workers on it, pass everything that Temporal keeps through a codec: inputs, results, heartbeats,
// memos, summaries and details as payloads, and the messages and stacks of failures too. It wraps the data converter that the
// options have. A nil codec changes nothing.
func Apply(o *client.Options, c converter.PayloadCodec) {
	if c == nil {
		return
	}
	o.DataConverter = Converter(o.DataConverter, c)
	o.FailureConverter = Failures(o.DataConverter)
}

// Converter is a data converter with a codec behind it; both may be nil.
func Converter(parent converter.DataConverter, c converter.PayloadCodec) converter.DataConverter {
	if parent == nil {
		parent = converter.GetDefaultDataConverter()
	}
	if c == nil {
		return parent
	}
	return converter.NewCodecDataConverter(parent, c)
}

// Failures is a failure converter that leaves nothing of a message or a stack beside the payload that it makes of them.
func Failures(data converter.DataConverter) converter.FailureConverter {
	return temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{DataConverter: data, EncodeCommonAttributes: true})
}
