package items

import (
	"bytes"
	"encoding/json"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
)

// valueLines are the lines of a results file that have a value.
type valueLines struct{ *jsonLines }

func (l valueLines) next() ([]byte, position, error) {
	for {
		line, begin, err := l.readLine("values")
		if err != nil {
			return nil, begin, err
		}
		of, err := results.ParseOutcome(line)
		if err != nil {
			return nil, begin, &SourceError{l.name, l.number, err.Error(), "", "name the results file of a map"}
		}
		if of.Kind == "" {
			return bytes.TrimSuffix(line, []byte{'\n'}), begin, nil
		}
	}
}

// Unwrap returns the item in a line that Items or Pick gave, and its key, if any.
func Unwrap(src contract.Source, line json.RawMessage) (item, key json.RawMessage, err error) {
	if !src.Values {
		return line, nil, nil
	}
	r, err := results.Parse(line)
	if err != nil {
		return nil, nil, &SourceError{Name: src.URL, Problem: err.Error(), Hint: "the file was changed; run the map that wrote it again"}
	}
	return r.Value, r.Key, nil
}
