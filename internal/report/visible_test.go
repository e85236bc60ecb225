package report

import (
	"bytes"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// hostile is text that takes over a terminal which obeys it: a link, the window's name,
// colours, a cleared screen, eight-bit sequences, text in another order, and a line
// written over.
const hostile = "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07\x1b]0;owned\x07\x1b[31m\x1b[2J\u009b31m\x9b31m\u202etxt.exe\u2066\rdone\x7f\b"

// steering lists the characters of a text that steer a terminal.
func steering(text string) (found []rune) {
	for i, r := range text {
		if _, size := utf8.DecodeRuneInString(text[i:]); steers(r) || r == utf8.RuneError && size == 1 {
			found = append(found, r)
		}
	}
	return found
}

func TestVisible(t *testing.T) {
	require.NotEmpty(t, steering(hostile))
	var out bytes.Buffer
	n, err := Visible(&out).Write([]byte("żółć\t😀\n" + hostile))
	require.NoError(t, err)
	require.Equal(t, len("żółć\t😀\n")+len(hostile), n)
	require.Equal(t, "żółć\t😀\n"+`\u001b]8;;http://evil.example\u0007click\u001b]8;;\u0007\u001b]0;owned\u0007\u001b[31m\u001b[2J\u009b31m\x9b31m`+
		`\u202etxt.exe\u2066\u000ddone\u007f\u0008`, out.String())
}

// Text comes in pieces, which end anywhere.
func TestVisible_CharactersCutInTwo(t *testing.T) {
	text := "żółć 😀 \u009b \u202e\n"
	var whole, pieces bytes.Buffer
	_, err := io.WriteString(Visible(&whole), text)
	require.NoError(t, err)
	v := Visible(&pieces)
	for i := range len(text) {
		n, err := v.Write([]byte(text[i : i+1]))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.Equal(t, whole.String(), pieces.String())
}
