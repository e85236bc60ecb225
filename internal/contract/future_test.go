package contract_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
)

// failing is a codec, some of whose answers fail.
type failing struct {
	converter.PayloadCodec
	decoded int
	fails   func(decoded int) error
}

func (f *failing) Decode(p []*common.Payload) ([]*common.Payload, error) {
	f.decoded++
	if err := f.fails(f.decoded); err != nil {
		return nil, err
	}
	return f.PayloadCodec.Decode(p)
}

// A workflow decides nothing by a fault that a codec, which is away, did not decode.
func TestFaultTold_WhileTheCodecFails(t *testing.T) {
	fault := gpumux.Fault{Kind: gpumux.FaultDeviceOOM, Message: "too large"}
	zlib := converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true})
	sent := codec.Failures(codec.Converter(nil, zlib)).ErrorToFailure(temporal.NewApplicationErrorWithOptions("too large", "device_oom",
		temporal.ApplicationErrorOptions{Details: []any{fault}}))
	down := errors.New("out of order")
	for name, c := range map[string]struct {
		fails  func(decoded int) error
		found  bool
		panics bool
	}{
		"never":             {func(int) error { return nil }, true, false},
		"for the message":   {func(decoded int) error { return map[int]error{1: down}[decoded] }, true, true},
		"for the details":   {func(decoded int) error { return map[int]error{2: down}[decoded] }, false, true},
		"always":            {func(int) error { return down }, false, true},
		"without the codec": {func(int) error { return converter.ErrEncodingIsNotSupported }, false, false},
	} {
		read := func() error {
			return codec.Failures(codec.Converter(nil, &failing{PayloadCodec: zlib, fails: c.fails})).FailureToError(proto.Clone(sent).(*failurepb.Failure))
		}
		require.Equal(t, c.found, contract.FaultIn(read()) != nil, name)
		decide := func() { require.Equal(t, c.found, contract.FaultTold(read()) != nil, name) }
		if c.panics {
			require.Panics(t, decide, name)
		} else {
			decide()
		}
	}
}
