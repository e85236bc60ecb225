package gpumux

import (
	"strings"
	"unicode"
)

// Plain writes text of others so that Markdown shows it as it is, in one line: names, faults and values can hold anything, and
// the Web UI shows Markdown. What has no meaning there is left as it is; the rest becomes code, in which there are no links,
// images and HTML.
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
	longest, run := 0, 0
	for _, r := range line {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if longest > 0 {
		// Code that begins or ends with a backtick needs a space between, of which Markdown takes one away.
		line = " " + line + " "
	}
	return fence + line + fence
}
