package items

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
)

// resultLines are the lines of a results file that have a value, or those that failed.
type resultLines struct {
	*jsonLines
	failed bool
}

func (l resultLines) next() ([]byte, position, error) {
	for {
		line, begin, err := l.readLine()
		if err != nil {
			return nil, begin, err
		}
		outcome, err := results.ParseOutcome(line)
		if err != nil {
			return nil, begin, mistake(l.name, l.number, err.Error(), "", "name the results file of a map")
		}
		if (outcome.Kind != "") != l.failed {
			continue
		}
		if l.failed {
			if r, err := results.Parse(line); err != nil || r.Item == nil {
				return nil, begin, mistake(l.name, l.number, fmt.Sprintf("item %d failed, and its result lacks it", outcome.Index), "",
					"run the map that wrote the file with withItem")
			}
		}
		return bytes.TrimSuffix(line, []byte{'\n'}), begin, nil
	}
}

// Unwrap returns the item in a line that Items or Pick gave, and its key, if any.
func Unwrap(src contract.Source, line json.RawMessage) (item, key json.RawMessage, err error) {
	if !src.Values {
		return line, nil, nil
	}
	r, err := results.Parse(line)
	if err != nil {
		return nil, nil, &gpumux.SourceError{Name: src.URL, Problem: err.Error(), Hint: "the file was changed; run the map that wrote it again"}
	}
	if src.Failed {
		return r.Item, r.Key, nil
	}
	return r.Value, r.Key, nil
}
