package diagnosis

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// scanned is a text with what rules need: small letters, CUDA error numbers.
type scanned struct {
	text, small string
	numbers     []numberAt
}

type numberAt struct {
	code, at int
	text     string
}

func scan(text string) scanned {
	w := scanned{text: text, small: strings.ToLower(text)}
	if !numbered().mayMatch(w.small) {
		return w
	}
	for _, m := range numbered().FindAllStringSubmatchIndex(text, -1) {
		code, _ := strconv.Atoi(text[max(m[2], m[4]):max(m[3], m[5])])
		w.numbers = append(w.numbers, numberAt{code, m[0], text[m[0]:m[1]]})
	}
	return w
}

// numbered matches a CUDA error that a library gives by its number.
var numbered = re(`\[(\d{1,3})\] Call to cu\w+|\bCUDA(?: driver| runtime)? (?:error|failure)(?: code)?[ :=(]{1,3}(\d{1,3})\b`)

// pattern is compiled when it is first needed: all of them are a tenth of the processor
// time of a short command.
type pattern func() expression

// expression has words: every match has one of them. A search for words is a thousand
// times faster than a match. Without words any text may match.
type expression struct {
	*regexp.Regexp
	words []string
}

func re(text string) pattern { return exact(`(?i)` + text) }

func exact(text string) pattern {
	return sync.OnceValue(func() expression {
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			panic(err) // the rules are constants
		}
		return expression{regexp.MustCompile(text), wordsOf(parsed.Simplify())}
	})
}

// mayMatch reports whether a text can match; small is the text in small letters.
func (e expression) mayMatch(small string) bool {
	return len(e.words) == 0 || slices.ContainsFunc(e.words, func(word string) bool { return strings.Contains(small, word) })
}

// wordsOf returns words, one of which is in every match; nil if there are none.
func wordsOf(e *syntax.Regexp) []string {
	switch e.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(e.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return wordsOf(e.Sub[0])
	case syntax.OpConcat:
		// The rarest part: the one whose shortest word is the longest.
		var best []string
		for _, part := range e.Sub {
			if words := wordsOf(part); shortest(words) > shortest(best) {
				best = words
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, branch := range e.Sub {
			words := wordsOf(branch)
			if len(words) == 0 {
				return nil
			}
			all = append(all, words...)
		}
		return all
	}
	return nil
}

func shortest(words []string) int {
	if len(words) == 0 {
		return 0
	}
	return len(slices.MinFunc(words, func(a, b string) int { return len(a) - len(b) }))
}
