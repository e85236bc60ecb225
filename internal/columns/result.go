package columns

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

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
		for i, a := range v.Arrays {
			if a.Type == 'f' && a.Size == 2 {
				v.Arrays[i] = a.Singles() // few readers know floats of 16 bits
			}
		}
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

type kind int8

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

// traits say what type numbers have.
type traits struct {
	// wide: some are whole, beyond 2^53, which floats may not hold. broken: some are not
	// whole. loose: whole ones in lists may become floats.
	wide, broken, loose bool
}

// cell is a value as a column takes it. The array of a list of numbers has no data.
type cell struct {
	kind kind
	traits
	array *arrays.Array
	value value
}

func cellOf(v value) *cell {
	c := &cell{kind: otherKind, value: v}
	switch first := v.text[0]; {
	case first == 'n':
		c.kind = nullKind
	case first == 't' || first == 'f':
		c.kind = truthKind
	case first == '"' && len(v.arrays) == 0:
		c.kind = textKind
		if _, ok := text.NonFinite[string(v.text)]; ok {
			c.kind, c.broken = numberKind, true
		}
	case first == '-' || first >= '0' && first <= '9':
		if whole, err := strconv.ParseInt(string(v.text), 10, 64); err == nil {
			c.kind, c.wide = numberKind, whole < -1<<53 || whole > 1<<53
		} else if _, err := strconv.ParseFloat(string(v.text), 64); err == nil && bytes.ContainsAny(v.text, ".eE") {
			c.kind, c.broken = numberKind, true
		}
	case string(v.text) == mark:
		if c.kind, c.array = arrayKind, &v.arrays[0]; slices.Contains(c.array.Shape, 0) {
			if c.kind = otherKind; len(c.array.Shape) == 1 {
				c.kind = emptyKind
			}
		}
	case first == '[':
		c.measure()
	}
	return c
}

// measure finds whether a list is one of numbers or truths, of one length at each depth.
func (c *cell) measure() {
	var all guess
	count := 0
	text.EachEntry(c.value.text, func(entry []byte) bool {
		x := cellOf(value{text: entry})
		if all = all.joined(x); x.kind == nullKind {
			all.kind = otherKind
		}
		count++
		return all.kind != otherKind
	})
	c.kind, c.traits, c.array = arrayKind, all.traits, &all.form
	switch number := all.number(); {
	case count == 0:
		c.kind = emptyKind
	case all.kind == truthKind:
		all.form = arrays.Array{Type: 'b', Size: 1}
	case all.kind == numberKind && number.ID() == arrow.INT64:
		all.form, c.loose = arrays.Array{Type: 'i', Size: 8}, true
	case all.kind == numberKind && number.ID() == arrow.FLOAT64:
		all.form, c.loose = arrays.Array{Type: 'f', Size: 8}, true
	case all.kind != arrayKind:
		c.kind = otherKind
	}
	all.form.Shape = append([]int{count}, all.form.Shape...)
}
