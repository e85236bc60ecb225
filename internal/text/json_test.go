package text_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/text"
)

var validSeeds = []string{
	`"a plain text of more than eight bytes"`, `"short"`, `""`, `"`, ``, ` `, `"\"`, `"\\"`, `"a\u00e9 and what follows"`, `"\u12"3"`, `"\u12`, `"\ud800"`, `{"a":1,"a":2}`,
	`"\x and what follows"`, `{"a":"b\nc","d":[1,"twelve letters",null]}`, `{"a" "b"}`, `"a"b"`, `"seven b` + "\n" + `ytes"`, "\"\x7f\"", "\"\xff\"",
	`"` + strings.Repeat("ä", 99) + `"`, strings.Repeat("[", 10001) + strings.Repeat("]", 10001), `"a" "b"`, `nul`, "{\n\"a\":\t\"b\" }", `{"a\nb\\":"c\"d"}`, `[1,2.5e3]`,
}

// Valid says what encoding/json and utf8 say.
func FuzzValid(f *testing.F) {
	for _, seed := range validSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		require.Equal(t, json.Valid(data) && utf8.Valid(data), text.Valid(data), "%q", data)
		require.Equal(t, before, data)
	})
}
