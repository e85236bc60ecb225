package columns

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/text"
)

// array is the value as an array: one that it is, or numbers or truths in lists of one
// length at each depth. Loose: whole numbers may have to become floats.
func (v value) array() (a arrays.Array, loose, ok bool) {
	if len(v.arrays) > 0 {
		return v.arrays[0], false, string(v.text) == mark
	}
	n := &numbers{leaf: -1}
	if !n.add(bytes.TrimSpace(v.text), 0) || n.leaf < 0 {
		return a, false, false
	}
	a.Shape = n.shape
	switch {
	case n.truths > 0:
		a.Type, a.Size = 'b', 1
		for i := 0; i < len(n.data); i += 8 {
			a.Data = append(a.Data, n.data[i])
		}
		return a, false, n.truths == len(a.Data)
	case n.floats:
		a.Type = 'f'
	default:
		a.Type = 'i'
	}
	a.Size, a.Data = 8, n.data
	return a, true, true
}

// numbers reads JSON that is a number, or lists of numbers.
type numbers struct {
	// shape is its shape as far as known; leaf is the depth of numbers, -1 before the first.
	shape []int
	leaf  int
	// data are whole numbers of 8 bytes, until floats says that all are floats. truths
	// counts those that are true or false.
	data   []byte
	floats bool
	truths int
}

// add reads a value at a depth. It is false where the value does not fit those before it.
func (n *numbers) add(value []byte, depth int) bool {
	if value[0] == '[' {
		return n.addList(value, depth)
	}
	if n.leaf < 0 {
		n.leaf = depth
	}
	return n.leaf == depth && n.addNumber(string(value))
}

func (n *numbers) addList(list []byte, depth int) bool {
	if n.leaf >= 0 && depth >= n.leaf {
		return false
	}
	first := depth == len(n.shape)
	if first {
		n.shape = append(n.shape, 0)
	}
	count, fits := 0, true
	text.EachEntry(list, func(entry []byte) bool {
		count++
		fits = n.add(entry, depth+1)
		return fits
	})
	if first {
		n.shape[depth] = count
	}
	return fits && n.shape[depth] == count
}

func (n *numbers) addNumber(word string) bool {
	if word == "true" || word == "false" {
		n.truths++
		n.append(uint64(len("false") - len(word)))
		return true
	}
	whole, err := strconv.ParseInt(word, 10, 64)
	if err == nil && !n.floats {
		n.append(uint64(whole))
		return true
	}
	x, known := text.NonFinite[word]
	if !known {
		if x, err = strconv.ParseFloat(word, 64); err != nil || isWhole(word) && !(n.floats && exact(whole)) {
			return false
		}
	}
	if !n.floats {
		if inexact(n.data) {
			return false
		}
		n.floats = true
		widen(n.data)
	}
	n.append(math.Float64bits(x))
	return true
}

func (n *numbers) append(word uint64) { n.data = binary.LittleEndian.AppendUint64(n.data, word) }

func isWhole(word string) bool { return !strings.ContainsAny(word, ".eE") }

// exact reports whether floats hold a whole number and all smaller ones.
func exact(whole int64) bool { return -1<<53 <= whole && whole <= 1<<53 }

// inexact reports whether floats do not hold all of some whole numbers of 8 bytes.
func inexact(data []byte) bool {
	for ; len(data) > 0; data = data[8:] {
		if !exact(int64(binary.LittleEndian.Uint64(data))) {
			return true
		}
	}
	return false
}

// widened is an array of whole numbers as one of floats, with memory of its own.
func widened(a arrays.Array) arrays.Array {
	a.Data = slices.Clone(a.Data)
	widen(a.Data)
	a.Type = 'f'
	return a
}

func widen(data []byte) {
	for ; len(data) > 0; data = data[8:] {
		binary.LittleEndian.PutUint64(data, math.Float64bits(float64(int64(binary.LittleEndian.Uint64(data)))))
	}
}
