package text

import "strings"

// excerpt is how many bytes are kept.
const excerpt = 200

// Excerpt is the beginning of a JSON value for people, of as many bytes as a fault keeps
// of its item.
func Excerpt(value []byte) string {
	if len(value) <= excerpt {
		return string(Unescaped(value))
	}
	return strings.ToValidUTF8(string(Unescaped(value[:excerpt-len("…")])), "") + "…"
}
