package contract

import (
	"maps"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

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
