package text_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/text"
)

func TestPlain(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                  "",
		"embed:embed":                       "embed:embed",
		"a/b.py:step_2 (3.5 %), then more":  "a/b.py:step_2 (3.5 %), then more",
		"[x](javascript:alert(1))":          "`[x](javascript:alert(1))`",
		"<img src=x onerror=alert(1)>":      "`<img src=x onerror=alert(1)>`",
		"![p](http://evil.example/p)":       "`![p](http://evil.example/p)`",
		"see https://evil.example":          "`see https://evil.example`",
		"see WWW.evil.example":              "`see WWW.evil.example`",
		"me@evil.example":                   "`me@evil.example`",
		"**bold**":                          "`**bold**`",
		"# head":                            "`# head`",
		"one\n\n# two\r\n- three":           "`one  # two  - three`",
		"a `b` <i>":                         "`a 'b' <i>`",
		"``` x":                             "`''' x`",
		"`":                                 "`'`",
		"\x1b]8;;http://e\x07t\x1b]8;;\x07": "`\ufffd]8;;http://e\ufffdt\ufffd]8;;\ufffd`",
		"a\u202eb\u2066c\u2028d":            "a\ufffdb\ufffdc\u0020d",
		"\u009b31m":                         "\ufffd31m",
	} {
		require.Equal(t, want, text.Plain(raw), "%q", raw)
	}
}

// Whatever comes, code ends where the text ends.
func FuzzPlain(f *testing.F) {
	f.Add("a ```` b `` <x> `")
	f.Fuzz(func(t *testing.T, raw string) {
		got := text.Plain(raw)
		require.NotContains(t, got, "\n")
		require.NotContains(t, got, "\x1b")
		if inner, code := strings.CutPrefix(got, "`"); code {
			require.Equal(t, len(inner)-1, strings.IndexByte(inner, '`'))
			return
		}
		require.False(t, strings.ContainsAny(got, "<[`"))
	})
}
