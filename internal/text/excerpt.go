package text

import "strings"

// excerpt is how many bytes are kept.
const excerpt = 200

// Excerpt is the beginning of a JSON value, of as many bytes as a fault keeps of its item.
func Excerpt(value []byte) string {
	if len(value) <= excerpt {
		return string(value)
	}
	return strings.ToValidUTF8(string(value[:excerpt-len("…")]), "") + "…"
}
