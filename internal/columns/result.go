package columns

import (
	"bytes"
	"fmt"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/results"
)

// result is one item's: a value, or a fault.
type result struct {
	index int64
	// key and item are nil where the map was not asked for them.
	key, item []byte
	fault     *gpumux.Fault
	value
}

// value is JSON with a mark in the place of each array.
type value struct {
	text   []byte
	arrays []arrays.Array
}

// mark stands for an array. A text of its own that says the same is written as unmarked.
const mark, unmarked = `"\u001f"`, `"\u001F"`

func parseResult(line []byte) (result, error) {
	r, err := results.ParseStored(line)
	if err != nil {
		return result{}, err
	}
	out := result{r.Index, r.Key, r.Item, r.Fault, value{text: r.Value}}
	if r.Arrays != nil {
		v, err := arrays.Parse(r.Arrays)
		if err != nil {
			return result{}, fmt.Errorf("item %d: %w", r.Index, err)
		}
		out.arrays = v.Arrays
		for i, text := range v.Texts {
			v.Texts[i] = bytes.ReplaceAll(text, []byte(mark), []byte(unmarked))
		}
		out.text = v.Join(nil, func(b []byte, _ arrays.Array) []byte { return append(b, mark...) })
	}
	return out, nil
}

func (v value) plain() []byte {
	if len(v.arrays) == 0 {
		return v.text
	}
	var b []byte
	parts := bytes.Split(v.text, []byte(mark))
	for i, array := range v.arrays {
		b = array.AppendText(append(b, parts[i]...))
	}
	return append(b, parts[len(v.arrays)]...)
}

// excerpt is the beginning of the value, for messages.
func (v value) excerpt() string {
	if len(v.arrays) == 1 && string(v.text) == mark {
		a := v.arrays[0]
		return fmt.Sprintf("an array of %s%d with shape %v", string(a.Type), a.Size, a.Shape) // as NumPy names it
	}
	return fmt.Sprintf("%.60s", v.plain())
}
