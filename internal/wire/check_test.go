package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	for _, good := range []string{
		`1`, `"\ud83d\ude00"`, `"\uD83D\uDE00 \uDBFF\uDFFF"`, `"\\ud800"`, `"\\\\ud800\n"`, `{"\ud800\udc00":["\u00e9\ue000\ud7ff"]}`, `"é"`,
	} {
		require.NoError(t, Check([]byte(good)), good)
	}
	for _, bad := range []string{
		`"\ud800"`, `"\udfff"`, `"\uDbFf"`, `"\ud800\ud800\udc00"`, `"\ude00\ud83d"`, `{"\ud800":1}`, `["a","\ud83d\\ude00"]`, `"\ud83dx"`,
		`"\\\ud800"`,
	} {
		require.ErrorIs(t, Check([]byte(bad)), errSurrogate, bad)
	}
	for _, bad := range []string{``, `{`, "\"\xff\"", `"\ud8"`} {
		require.ErrorIs(t, Check([]byte(bad)), errNoJSON, bad)
	}
}

// What Go's decoder replaces without a word is what is refused.
func FuzzCheck(f *testing.F) {
	f.Add(`"\ud800\\"`)
	f.Fuzz(func(t *testing.T, text string) {
		var got string
		if json.Unmarshal([]byte(text), &got) != nil || strings.Contains(text, "\ufffd") || strings.Contains(strings.ToLower(text), `\ufffd`) {
			return
		}
		require.Equal(t, strings.Contains(got, "\ufffd"), Check([]byte(text)) != nil, text)
	})
}
