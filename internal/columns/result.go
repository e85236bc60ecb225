package columns

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
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

type field struct {
	name string
	value
}

// fields are the members of an object, in order. It is not ok for other values.
func (v value) fields() (all []field, ok bool) {
	rest := v.arrays
	ok = text.EachField(v.text, func(name string, member []byte) bool {
		inside := 0
		if len(rest) > 0 {
			inside = bytes.Count(member, []byte(mark))
		}
		all = append(all, field{name, value{member, rest[:inside]}})
		rest = rest[inside:]
		return true
	})
	return all, ok
}

type kind int

const (
	nullKind kind = iota
	truthKind
	numberKind
	textKind
	// empty is a list without elements.
	emptyKind
	arrayKind
	// list is one-dimensional arrays of different lengths; only columns are.
	listKind
	// other is JSON without a type of its own, such as an object, which becomes text.
	otherKind
)

// traits are what decides the type of numbers.
type traits int

const (
	negative traits = 1 << iota
	// beyond are whole numbers that need the 64th bit.
	beyond
	// wide are whole numbers beyond 2^53, which floats may not hold.
	wide
	nan
	// broken are floats but NaN.
	broken
)

// cell is a value as a column takes it.
type cell struct {
	kind  kind
	whole int64
	float float64
	has   traits
	array arrays.Array
	loose bool
	value value
}

func cellOf(v value) cell {
	c := cell{kind: otherKind, value: v}
	switch first := v.text[0]; {
	case first == 'n':
		c.kind = nullKind
	case first == 't' || first == 'f':
		c.kind, c.whole = truthKind, int64(len("false")-len(v.text))
	case first == '"' && len(v.arrays) == 0:
		c.kind = textKind
		if x, ok := text.NonFinite[string(v.text)]; ok {
			c.setFloat(x)
		}
	case first == '-' || first >= '0' && first <= '9':
		if whole, err := strconv.ParseInt(string(v.text), 10, 64); err == nil {
			c.setWhole(whole)
		} else if u, err := strconv.ParseUint(string(v.text), 10, 64); err == nil {
			c.kind, c.whole, c.has = numberKind, int64(u), beyond|wide
		} else if x, err := strconv.ParseFloat(string(v.text), 64); err == nil && !isWhole(string(v.text)) {
			c.setFloat(x)
		}
	case string(v.text) == "[]":
		c.kind = emptyKind
	case first == '[' || first == '"':
		switch a, loose, ok := v.array(); {
		case !ok:
		case !slices.Contains(a.Shape, 0):
			if a.Type == 'f' && a.Size == 2 {
				a = a.Singles() // few readers know floats of 16 bits
			}
			c.kind, c.array, c.loose = arrayKind, a, loose
			if loose && a.Type == 'i' && inexact(a.Data) {
				c.has = wide
			}
		case len(a.Shape) == 1:
			c.kind = emptyKind
		}
	}
	return c
}

func (c *cell) setWhole(whole int64) {
	c.kind, c.whole, c.float = numberKind, whole, float64(whole)
	if whole < 0 {
		c.has |= negative
	}
	if !exact(whole) {
		c.has |= wide
	}
}

func (c *cell) setFloat(x float64) {
	c.kind, c.float, c.has = numberKind, x, broken
	if x != x {
		c.has = nan
	}
}
