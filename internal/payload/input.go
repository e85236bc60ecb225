package payload

import (
	"fmt"

	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
)

// Decode reads an input behind the codecs. The error is a *gpumux.InputError with every mistake; trying again cannot help.
//
// Workflows and activities take a converter.RawValue for it: Temporal retries for ever what the SDK itself cannot decode.
func Decode[In interface{ Validate() error }](raw converter.RawValue, in *In) error {
	payload := raw.Payload()
	switch encoding := string(payload.GetMetadata()[converter.MetadataEncoding]); encoding {
	case converter.MetadataEncodingJSON, converter.MetadataEncodingProtoJSON:
		return gpumux.Decode(payload.GetData(), in)
	case "", converter.MetadataEncodingNil:
		return wrong("is missing; give one object")
	case converter.MetadataEncodingBinary:
		return wrong("is bytes; give one object as JSON")
	default:
		key := ""
		if id := payload.GetMetadata()["encryption-key-id"]; id != nil {
			key = fmt.Sprintf(" with the key %.60q", id)
		}
		return wrong(fmt.Sprintf("has the encoding %.60q%s, which this worker does not read: give the worker the codec or the key (codec.keys "+
			"in its file), or give one object as JSON (%s)", encoding, key, converter.MetadataEncodingJSON))
	}
}

func wrong(what string) error {
	return &gpumux.InputError{What: "input", Problems: []gpumux.Problem{{Field: "input", Message: what}}}
}
