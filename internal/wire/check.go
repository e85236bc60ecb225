package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Errors of Check.
var (
	errNoJSON    = errors.New("it is not JSON")
	errSurrogate = errors.New(`it holds half of a surrogate pair (\ud800 to \udfff), which is no character: most readers of JSON refuse it`)
)

// Check says why text is not JSON that every reader takes, or nil.
func Check(text []byte) error {
	switch {
	case !json.Valid(text) || !utf8.Valid(text):
		return errNoJSON
	case halfPair(text):
		return errSurrogate
	}
	return nil
}

// halfPair reports whether valid JSON has one half of a surrogate pair.
func halfPair(text []byte) bool {
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 {
			return false
		}
		text = text[at:]
		switch half := surrogate(text); {
		case half == 0:
			text = text[2:]
		case half == 'l' || surrogate(text[6:]) != 'l':
			return true
		default:
			text = text[12:]
		}
	}
}

// surrogate is h or l for the escape of a pair's high or low half, else 0.
func surrogate(text []byte) byte {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' || text[2]|0x20 != 'd' {
		return 0
	}
	switch text[3] | 0x20 {
	case '8' | 0x20, '9' | 0x20, 'a', 'b':
		return 'h'
	case 'c', 'd', 'e', 'f':
		return 'l'
	}
	return 0
}
