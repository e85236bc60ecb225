package text_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/text"
)

func TestUnescaped(t *testing.T) {
	for written, want := range map[string]string{
		`[1,"NaN",null]`: `[1,"NaN",null]`,
		`[` + text.NaN + `,{"a":` + text.Infinity + `},` + text.MinusInfinity + `]`: `["NaN",{"a":"Infinity"},"-Infinity"]`,
		`"\\u004eaN"`:   `"\\u004eaN"`,
		`"\"\\u004eaN"`: `"\"\\u004eaN"`,
		`"\u0007"`:      `"\u0007"`,
	} {
		got := text.Unescaped([]byte(written))
		require.Equal(t, want, string(got))
		require.JSONEq(t, written, string(got))
	}
	require.Equal(t, `{"loss":"NaN"}`, text.Excerpt([]byte(`{"loss":`+text.NaN+`}`)))
	var name string
	require.NoError(t, json.Unmarshal([]byte(text.MinusInfinity), &name))
	require.Equal(t, "-Infinity", name)
}
