package columns

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/text"
)

// array is the value as an array: one that it is, or numbers or truths and lists of them, which all have one length at each depth. Loose
// says that only JSON tells the type, so that whole numbers may have to become floats.
func (v value) array() (a arrays.Array, loose, ok bool) {
	if len(v.arrays) > 0 {
		return v.arrays[0], false, len(v.text) == 1
	}
	n := &numbers{text: v.text, leaf: -1}
	if !n.value(0) || n.leaf < 0 {
		return a, false, false
	}
	a.Shape = n.shape
	switch {
	case n.truths > 0:
		a.Type, a.Size, a.Data = 'b', 1, make([]byte, len(n.words))
		for i, word := range n.words {
			a.Data[i] = byte(word)
		}
		return a, false, n.truths == len(n.words)
	case n.floats:
		a.Type = 'f'
	default:
		a.Type = 'i'
	}
	a.Size, a.Data = 8, make([]byte, 0, 8*len(n.words))
	for _, word := range n.words {
		a.Data = binary.LittleEndian.AppendUint64(a.Data, word)
	}
	return a, true, true
}

// numbers reads JSON that is a number, or lists of numbers.
type numbers struct {
	text []byte
	at   int
	// shape is what is known of it; leaf is the depth of numbers, -1 before the first.
	shape []int
	leaf  int
	// words are whole numbers, until floats says that all are floats. truths counts those that are true or false.
	words  []uint64
	floats bool
	truths int
}

func (n *numbers) value(depth int) bool {
	n.space()
	if n.at < len(n.text) && n.text[n.at] == '[' {
		return n.list(depth)
	}
	if n.leaf < 0 {
		n.leaf = depth
	}
	return n.leaf == depth && n.number()
}

func (n *numbers) list(depth int) bool {
	if n.leaf >= 0 && depth >= n.leaf {
		return false
	}
	first := depth == len(n.shape)
	if first {
		n.shape = append(n.shape, 0)
	}
	n.at++
	count := 0
	for n.space(); n.text[n.at] != ']'; n.space() {
		if n.text[n.at] == ',' {
			n.at++
		}
		if !n.value(depth + 1) {
			return false
		}
		count++
	}
	n.at++
	if first {
		n.shape[depth] = count
	}
	return n.shape[depth] == count
}

func (n *numbers) space() {
	for n.at < len(n.text) && (n.text[n.at] == ' ' || n.text[n.at] == '\t') {
		n.at++
	}
}

// nonFiniteOf are the floats that JSON has no number for.
var nonFiniteOf = map[string]float64{text.NaN: math.NaN(), text.Infinity: math.Inf(1), text.MinusInfinity: math.Inf(-1)}

func (n *numbers) number() bool {
	end := n.at
	for end < len(n.text) && n.text[end] != ',' && n.text[end] != ']' && n.text[end] != ' ' {
		end++
	}
	word := string(n.text[n.at:end])
	n.at = end
	if word == "true" || word == "false" {
		n.truths++
		n.words = append(n.words, uint64(len("false")-len(word)))
		return true
	}
	if whole, err := strconv.ParseInt(word, 10, 64); err == nil && !n.floats {
		n.words = append(n.words, uint64(whole))
		return true
	}
	x, err := strconv.ParseFloat(word, 64)
	if other, ok := nonFiniteOf[word]; ok {
		x, err = other, nil
	}
	if err != nil {
		return false
	}
	if !n.floats {
		n.floats = true
		floatsOf(n.words)
	}
	n.words = append(n.words, math.Float64bits(x))
	return true
}

// floatsOf makes floats of whole numbers.
func floatsOf(words []uint64) {
	for i, word := range words {
		words[i] = math.Float64bits(float64(int64(word)))
	}
}

// widened is an array of whole numbers as one of floats, with memory of its own.
func widened(a arrays.Array) arrays.Array {
	a.Data = slices.Clone(a.Data)
	widen(a.Data)
	a.Type = 'f'
	return a
}

// widen makes floats of whole numbers of 8 bytes.
func widen(data []byte) {
	for ; len(data) > 0; data = data[8:] {
		binary.LittleEndian.PutUint64(data, math.Float64bits(float64(int64(binary.LittleEndian.Uint64(data)))))
	}
}
