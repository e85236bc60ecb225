package contract

import (
	"maps"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// unsealed is the metadata of a payload that reached a worker without its codec.
const unsealed = "gpumux-unsealed"

// Noticing is the codec of a worker that marks what came without it.
type Noticing struct{ converter.PayloadCodec }

// Decode marks those payloads that the codec leaves as they are.
func (n Noticing) Decode(sent []*common.Payload) ([]*common.Payload, error) {
	decoded, err := n.PayloadCodec.Decode(sent)
	if err != nil {
		return nil, err
	}
	for i, p := range decoded {
		if p != sent[i] {
			continue
		}
		metadata := map[string][]byte{unsealed: {1}}
		maps.Copy(metadata, p.GetMetadata())
		decoded[i] = &common.Payload{Metadata: metadata, Data: p.GetData()}
	}
	return decoded, nil
}

// Unsealed reports whether an input came to a worker, which notices, without its codec.
func Unsealed(raw converter.RawValue) bool { return raw.Payload().GetMetadata()[unsealed] != nil }

// ErrUnsealed refuses such an input.
var ErrUnsealed = wrong("input", "came unencrypted, and this worker has keys: give the client the workers' keys, or let the worker "+
	"take it with codec.accept_plain in its file")
