// Package codectest has a codec that hides payloads, for tests.
package codectest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// Encoding is that of what Flipped has encoded.
const Encoding = "binary/flipped"

// Flipped hides whole payloads. It leaves what it has not encoded as it is, and refuses
// what was changed since.
type Flipped struct{}

var _ converter.PayloadCodec = Flipped{}

// Encode hides payloads.
func (Flipped) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	hidden := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		data, err := p.Marshal()
		if err != nil {
			return nil, err
		}
		data = flip(binary.BigEndian.AppendUint32(data, crc32.ChecksumIEEE(data)))
		hidden[i] = &common.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(Encoding)}, Data: data}
	}
	return hidden, nil
}

// Decode returns them as they were.
func (Flipped) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	shown := slices.Clone(payloads)
	for i, p := range payloads {
		if string(p.GetMetadata()[converter.MetadataEncoding]) != Encoding {
			continue
		}
		data := flip(slices.Clone(p.GetData()))
		end := len(data) - 4
		if end < 0 || crc32.ChecksumIEEE(data[:end]) != binary.BigEndian.Uint32(data[end:]) {
			return nil, fmt.Errorf("it was changed: %w", converter.ErrUnableToDecode)
		}
		shown[i] = &common.Payload{}
		if err := shown[i].Unmarshal(data[:end]); err != nil {
			return nil, err
		}
	}
	return shown, nil
}

func flip(data []byte) []byte {
	for i := range data {
		data[i] ^= 0xff
	}
	return data
}
