package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
)

// What came encrypted is told from what did not, and both are read.
func TestNoticing(t *testing.T) {
	zlib := converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true})
	noticing := codec.Converter(nil, contract.Noticing{PayloadCodec: zlib})
	for sender, unsealed := range map[converter.DataConverter]bool{codec.Converter(nil, zlib): false, codec.Converter(nil, nil): true} {
		sent, err := sender.ToPayload(gpumux.MapInput{Task: "t"})
		require.NoError(t, err)
		before := len(sent.GetMetadata())
		var raw converter.RawValue
		require.NoError(t, noticing.FromPayload(sent, &raw))
		require.Equal(t, unsealed, contract.Unsealed(raw))
		require.Len(t, sent.GetMetadata(), before, "the history's own stays as it is")
		var in gpumux.MapInput
		require.NoError(t, noticing.FromPayload(sent, &in))
		require.Equal(t, "t", in.Task)
	}
}
