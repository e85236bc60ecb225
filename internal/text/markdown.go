// Package text makes strangers' text fit to be shown, and reads the fields of strangers'
// JSON.
//
// It owns how a long value is cut, what would mean something in Markdown, and how JSON
// says NaN. It never writes anywhere. It holds no state and so never has to stop.
package text

import (
	"strings"
	"unicode"
)

// Plain makes one line of text that Markdown, which the Web UI shows, leaves as it is:
// names, faults and values can hold anything. Text with a meaning in Markdown becomes
// code, in which there are no links, images and HTML; backticks would end it.
func Plain(text string) string {
	line := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
	if !strings.ContainsAny(line, "`*[]<>!\\|~#&@$^") && !strings.Contains(line, "://") && !strings.Contains(strings.ToLower(line), "www.") {
		return line
	}
	return "`" + strings.ReplaceAll(line, "`", "'") + "`"
}
