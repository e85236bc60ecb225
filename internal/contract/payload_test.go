package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// A codec of the service is undone before the input is looked at, and one that is missing
// here is named.
func TestDecode_BehindACodec(t *testing.T) {
	zipped := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(),
		converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true}))
	sent, err := zipped.ToPayloads(contract.PartsInput{Parts: "m/parts"})
	require.NoError(t, err)
	var raw converter.RawValue
	require.NoError(t, zipped.FromPayloads(sent, &raw))
	var in contract.PartsInput
	require.NoError(t, contract.DecodePayload(raw, &in))
	require.Equal(t, "m/parts", in.Parts)

	err = contract.DecodePayload(converter.NewRawValue(sent.Payloads[0]), &in)
	require.ErrorContains(t, err, "give the worker the codec")
}

// Whoever runs the worker learns from the error which codec is missing.
func TestDecode_NamesTheEncodingThatIsMissing(t *testing.T) {
	var in gpumux.MapInput
	err := contract.DecodePayload(converter.NewRawValue(&common.Payload{Metadata: map[string][]byte{
		converter.MetadataEncoding: []byte("binary/other\x1b[31m")}}), &in)
	var mistakes *gpumux.InputError
	require.ErrorAs(t, err, &mistakes)
	require.ErrorContains(t, err, `the encoding "binary/other\x1b[31m", which this worker does not read`)
	require.ErrorContains(t, err, "TEMPORAL_CODEC_ENDPOINT")
}
