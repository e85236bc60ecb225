package contract

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
)

// maxInput is the most bytes of an input; Temporal servers take 2 MiB unless told
// otherwise.
const maxInput = 4 << 20

// Decode reads the input of a workflow or an activity, and validates it: types have a
// Validate where a wrong one would do harm, such as endless work or another's object. It
// ignores fields that it does not know, but a gpumux.MapInput refuses them. The error is
// a *gpumux.InputError: anybody who may use the namespace can send any bytes. Reading
// takes memory in proportion to the data.
//
//workflowcheck:ignore
func Decode(data []byte, in any) error {
	if len(data) > maxInput {
		return wrong("input", "has %s, more than the %s that travel inline; put the items in a file and give source",
			gpumux.Size(len(data)), gpumux.Size(maxInput))
	}
	var broken *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch err := json.Unmarshal(data, in); {
	case errors.As(err, &broken):
		return wrong("input", "is not JSON: byte %d of %d makes no sense", broken.Offset, len(data))
	case errors.As(err, &mismatch):
		return wrong(cmp.Or(mismatch.Field, "input"), "JSON %.60s does not belong here", mismatch.Value)
	case err != nil:
		return wrong("input", "%v", err)
	}
	if checked, ok := in.(interface{ Validate() error }); ok {
		return checked.Validate()
	}
	return nil
}

func wrong(field, format string, args ...any) error {
	bad := gpumux.InputError{What: "input"}
	bad.Add(field, format, args...)
	return bad.Err()
}

// Workflows and activities take a converter.RawValue, because Temporal retries for ever
// what the SDK itself cannot decode. Trying again cannot help after a *gpumux.InputError.

// DecodePayload reads and validates an input behind the codecs; see Decode.
func DecodePayload(raw converter.RawValue, in any) error {
	payload := raw.Payload()
	switch encoding := string(payload.GetMetadata()[converter.MetadataEncoding]); encoding {
	case converter.MetadataEncodingJSON, converter.MetadataEncodingProtoJSON:
		return Decode(payload.GetData(), in)
	case "", converter.MetadataEncodingNil:
		return wrong("input", "is missing; give one object")
	default:
		if reason := payload.GetMetadata()[refused]; reason != nil {
			return wrong("input", "has the encoding %.60q, which the codec does not read: %s", encoding, reason)
		}
		return wrong("input", "has the encoding %.60q, which this worker does not read: give the worker the codec (its server in "+
			"TEMPORAL_CODEC_ENDPOINT), or give one object as JSON (%s)", encoding, converter.MetadataEncodingJSON)
	}
}

// refused is why a codec did not decode a payload.
const refused = "gpumux-refused"

// MarkRefused notes why a codec did not decode a payload.
func MarkRefused(p *common.Payload, why error) {
	metadata := map[string][]byte{refused: []byte(why.Error())}
	maps.Copy(metadata, p.GetMetadata())
	p.Metadata = metadata
}

// Absent refuses a value where none belongs, and says what is wrong; null is none.
func Absent(raw converter.RawValue, what string) error {
	if data := raw.Payload().GetData(); len(data) > 0 && string(data) != "null" {
		return wrong("input", "%s", what)
	}
	return nil
}
