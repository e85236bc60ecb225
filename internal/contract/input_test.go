package contract

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
)

// Whoever runs the worker learns from the error which codec and which key is missing.
func TestDecode_NamesTheEncodingThatIsMissing(t *testing.T) {
	var in gpumux.MapInput
	err := Decode(converter.NewRawValue(&common.Payload{Metadata: map[string][]byte{
		converter.MetadataEncoding: []byte("binary/other"), "encryption-key-id": []byte("b\x1b[31m")}}), &in)
	var mistakes *gpumux.InputError
	require.ErrorAs(t, err, &mistakes)
	require.ErrorContains(t, err, `the encoding "binary/other" with the key "b\x1b[31m", which this worker does not read`)
	require.ErrorContains(t, err, "codec.keys")
}
