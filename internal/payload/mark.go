package payload

import (
	"maps"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"
)

// Reference is the encoding of a payload that the SDK of another program has put into
// external storage, in the place of the SDK's own. Of that one the SDK says nothing here
// but that it has no driver, and tries for ever.
const Reference = "gpumux/external-storage-reference"

const (
	driver = "driver"
	// refused is why a codec did not decode a payload.
	refused = "gpumux-refused"
)

// MarkRefused notes why a codec did not decode a payload.
func MarkRefused(p *common.Payload, why error) {
	p.Metadata = maps.Clone(p.GetMetadata())
	if p.Metadata == nil {
		p.Metadata = map[string][]byte{}
	}
	p.Metadata[refused] = []byte(why.Error())
}

// MarkReference gives a reference to external storage the encoding Reference.
func MarkReference(p *common.Payload) {
	var to sdk.ExternalStorageReference
	switch string(p.GetMetadata()[converter.MetadataEncoding]) {
	case "json/external-storage-reference": // of earlier SDKs
	case converter.MetadataEncodingProtoJSON:
		if string(p.GetMetadata()[converter.MetadataMessageType]) != string(to.ProtoReflect().Descriptor().FullName()) {
			return
		}
	default:
		return
	}
	_ = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(p.GetData(), &to) // one that cannot be read has no name
	p.Metadata = map[string][]byte{converter.MetadataEncoding: []byte(Reference), driver: []byte(to.GetDriverName())}
}
