package codec

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// The metadata of an encrypted payload. Its data is a random nonce of 12 bytes and the
// whole payload under AES-256-GCM. The encoding and the key's ID are authenticated.
const (
	Encoding      = "binary/gpumux-aes256-gcm"
	MetadataKeyID = "encryption-key-id"

	payloadPurpose = "gpumux payload 1"
)

var _ converter.PayloadCodec = (*Keys)(nil)

// payloadCipher encrypts under one key, each time with a new random nonce.
func (k *Keys) payloadCipher(id string) (cipher.AEAD, error) {
	key, err := k.Derive(id, nil, payloadPurpose)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// associated is the associated data, which ties a payload to its encoding and key.
func associated(id string) []byte { return []byte(Encoding + "\x00" + id) }

// Encode encrypts every payload with the current key.
func (k *Keys) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	sealed := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := p.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encrypt a payload: %w", err)
		}
		sealed[i] = &common.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(Encoding), MetadataKeyID: []byte(k.current)},
			Data:     k.payloads[k.current].Seal(nil, nil, plain, associated(k.current)),
		}
	}
	return sealed, nil
}

// Decode decrypts payloads of Encode, and leaves all others as they are. One under an
// unknown key stays too: its reader fails on the encoding, for good. An error wraps
// converter.ErrUnableToDecode, since no further try can help.
func (k *Keys) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	plain := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		plain[i] = p
		if string(p.GetMetadata()[converter.MetadataEncoding]) != Encoding {
			continue
		}
		id := string(p.GetMetadata()[MetadataKeyID])
		key, known := k.payloads[id]
		if !known {
			continue
		}
		text, err := key.Open(nil, nil, p.GetData(), associated(id))
		if err != nil {
			return nil, fmt.Errorf("decrypt a payload: it was changed, or the key %q of %s is another than the one it was encrypted with: %w",
				id, k.path, converter.ErrUnableToDecode)
		}
		plain[i] = &common.Payload{}
		if err := plain[i].Unmarshal(text); err != nil {
			return nil, fmt.Errorf("decrypt a payload: what was encrypted is no payload: %w", converter.ErrUnableToDecode)
		}
	}
	return plain, nil
}
