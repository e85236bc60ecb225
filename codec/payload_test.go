package codec

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"
)

func seal(t testing.TB, c converter.PayloadCodec, value any) *common.Payload {
	t.Helper()
	p, err := Converter(nil, c).ToPayload(value)
	require.NoError(t, err)
	return p
}

func TestPayloads_ComeBackAsTheyWere(t *testing.T) {
	k := load(t, map[string]string{"a.key": one})
	for _, value := range []any{"marker", map[string]any{"x": 1.5}, nil, []byte("marker"), strings.Repeat("marker", 300000)} {
		p := seal(t, k, value)
		require.Equal(t, Encoding, string(p.Metadata[converter.MetadataEncoding]))
		require.Equal(t, "a", string(p.Metadata[MetadataKeyID]))
		require.NotContains(t, p.String(), "marker")
		again := seal(t, k, value)
		require.NotEqual(t, p.Data, again.Data, "a nonce of its own")
		var back any
		if _, bytes := value.([]byte); bytes {
			var raw []byte
			require.NoError(t, Converter(nil, k).FromPayload(p, &raw))
			back = raw
		} else {
			require.NoError(t, Converter(nil, k).FromPayload(p, &back))
		}
		require.Equal(t, value, back)
	}
}

func TestPayloads_PlainOnesPass(t *testing.T) {
	k := load(t, map[string]string{"a.key": one})
	plain := seal(t, nil, "text")
	back, err := k.Decode([]*common.Payload{plain, {}, seal(t, k, "other")})
	require.NoError(t, err)
	require.True(t, proto.Equal(plain, back[0]))
	require.True(t, proto.Equal(&common.Payload{}, back[1]))
	require.Equal(t, `"other"`, string(back[2].Data))
}

func TestPayloads_KeysRotate(t *testing.T) {
	before := load(t, map[string]string{"a.key": one})
	added := load(t, map[string]string{"a.key": one, "b.key": two, "current": "a"})
	switched := load(t, map[string]string{"a.key": one, "b.key": two, "current": "b"})
	removed := load(t, map[string]string{"b.key": two})
	old, fresh := seal(t, before, "old"), seal(t, switched, "new")
	for _, k := range []*Keys{added, switched} {
		back, err := k.Decode([]*common.Payload{old, fresh})
		require.NoError(t, err)
		require.Equal(t, `"old"`, string(back[0].Data))
		require.Equal(t, `"new"`, string(back[1].Data))
	}
	for k, p := range map[*Keys]*common.Payload{before: fresh, removed: old} {
		var text string
		require.ErrorIs(t, Converter(nil, k).FromPayload(p, &text), converter.ErrEncodingIsNotSupported)
		require.ErrorContains(t, Converter(nil, k).FromPayload(p, &text), Encoding)
	}
}

func TestPayloads_ChangesAreNoticed(t *testing.T) {
	k := load(t, map[string]string{"a.key": one, "b.key": two, "current": "a"})
	for name, change := range map[string]func(*common.Payload){
		"a bit":        func(p *common.Payload) { p.Data[len(p.Data)/2] ^= 1 },
		"the nonce":    func(p *common.Payload) { p.Data[0] ^= 1 },
		"the end":      func(p *common.Payload) { p.Data = p.Data[:len(p.Data)-1] },
		"everything":   func(p *common.Payload) { p.Data = nil },
		"the key's ID": func(p *common.Payload) { p.Metadata[MetadataKeyID] = []byte("b") },
	} {
		p := seal(t, k, "text")
		change(p)
		_, err := k.Decode([]*common.Payload{p})
		require.ErrorContains(t, err, "it was changed, or the key", name)
	}
}

func TestApply_FailuresKeepNothingPlain(t *testing.T) {
	k := load(t, map[string]string{"a.key": one})
	var o client.Options
	Apply(&o, nil)
	require.Nil(t, o.DataConverter)
	require.Nil(t, o.FailureConverter)
	Apply(&o, k)
	failure := o.FailureConverter.ErrorToFailure(temporal.NewApplicationErrorWithOptions("marker", "kind", temporal.ApplicationErrorOptions{
		Details: []any{"marker"}, Cause: errors.New("marker")}))
	require.NotContains(t, failure.String(), "marker")
	var back *temporal.ApplicationError
	require.ErrorAs(t, o.FailureConverter.FailureToError(failure), &back)
	require.Equal(t, "marker", back.Message())
	var detail string
	require.NoError(t, back.Details(&detail))
	require.Equal(t, "marker", detail)
}

func FuzzDecode(f *testing.F) {
	k := load(f, map[string]string{"a.key": one})
	p := seal(f, k, "text")
	f.Add([]byte(Encoding), []byte("a"), p.Data)
	f.Add([]byte("json/plain"), []byte(nil), []byte("1"))
	f.Fuzz(func(t *testing.T, encoding, id, data []byte) {
		sent := &common.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: encoding, MetadataKeyID: id}, Data: data}
		back, err := k.Decode([]*common.Payload{sent})
		switch {
		case err != nil:
			require.Equal(t, Encoding, string(encoding))
		case string(encoding) == Encoding && string(id) == "a":
			require.True(t, proto.Equal(sent, p))
		default:
			require.True(t, proto.Equal(sent, back[0]))
		}
	})
}
