// Package number reduces numbers: sum, mean, least, greatest, count.
//
// It owns how exact they are, and the state of a reduce between two stretches. It never reads a store.
package number

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
)

// Reducer reduces numbers in one of gpumux's own ways. Numbers written without a fraction and an exponent are whole: sums and
// comparisons of them are exact, whatever their size. All others are 64-bit floats. Their sum is compensated (Neumaier), so it is
// about as good as one with twice the digits.
type Reducer struct {
	reduce string
	count  int64
	// whole is the sum of the whole numbers.
	whole big.Int
	// float is the sum of the floats, rest what rounding has lost of it. floats says that there were any.
	floats      bool
	float, rest float64
	// best is the least or greatest number so far, as it was written.
	best string
}

// state is a Reducer between activities.
type state struct {
	Whole  string  `json:"whole,omitempty"`
	Floats bool    `json:"floats,omitempty"`
	Float  float64 `json:"float,omitempty"`
	Rest   float64 `json:"rest,omitempty"`
	Best   string  `json:"best,omitempty"`
}

// New begins one of the reduces that gpumux.ReduceSum and its siblings name.
func New(reduce string) *Reducer { return &Reducer{reduce: reduce} }

// Count is how many values there were.
func (n *Reducer) Count() int64 { return n.count }

var errNoNumber = errors.New("it takes numbers")

// Add adds one value as JSON.
func (n *Reducer) Add(value []byte) error {
	n.count++
	if n.reduce == gpumux.ReduceCount {
		return nil
	}
	text := string(value)
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return errNoNumber
	}
	if n.reduce == gpumux.ReduceMin || n.reduce == gpumux.ReduceMax {
		return n.compare(text)
	}
	if isWhole(text) {
		n.addWhole(text)
		return nil
	}
	f, err := float(text)
	if err != nil {
		return err
	}
	n.floats = true
	n.addFloat(f)
	return nil
}

func isWhole(text string) bool { return !strings.ContainsAny(text, ".eE") }

func float(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, errors.New("the number does not fit a 64-bit float")
	}
	return f, nil
}

func (n *Reducer) addWhole(text string) {
	i, _ := new(big.Int).SetString(text, 10) // JSON was checked before
	n.whole.Add(&n.whole, i)
}

func (n *Reducer) addFloat(f float64) {
	sum := n.float + f
	if math.Abs(n.float) >= math.Abs(f) {
		n.rest += n.float - sum + f
	} else {
		n.rest += f - sum + n.float
	}
	n.float = sum
}

// compare keeps the better of two numbers, and the first of equal ones.
func (n *Reducer) compare(text string) error {
	candidate, err := exact(text)
	if err != nil || n.best == "" {
		n.best = text
		return err
	}
	old, err := exact(n.best)
	if order := candidate.Cmp(old); err == nil && (n.reduce == gpumux.ReduceMin && order < 0 || n.reduce == gpumux.ReduceMax && order > 0) {
		n.best = text
	}
	return err
}

// exact is a whole number itself, or the float that another one stands for.
func exact(text string) (*big.Float, error) {
	if isWhole(text) {
		whole, _ := new(big.Int).SetString(text, 10)
		return new(big.Float).SetInt(whole), nil // with as many digits as it takes
	}
	f, err := float(text)
	if err != nil {
		return nil, err
	}
	return big.NewFloat(f), nil
}

// Merge adds the state of another stretch, which lies behind this one.
func (n *Reducer) Merge(count int64, raw json.RawMessage) error {
	if count == 0 {
		return nil
	}
	n.count += count
	var s state
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("read the state of a reduce: %w", err)
	}
	if s.Best != "" {
		return n.compare(s.Best)
	}
	if s.Whole != "" {
		n.addWhole(s.Whole)
	}
	if s.Floats {
		n.floats = true
		n.addFloat(s.Float)
		n.addFloat(s.Rest)
	}
	return nil
}

// State is what Merge takes. The error says that a sum fits no 64-bit float.
func (n *Reducer) State() (json.RawMessage, error) {
	if n.floats && !finite(n.float+n.rest) {
		return nil, errBeyond
	}
	s := state{Floats: n.floats, Float: n.float, Rest: n.rest, Best: n.best}
	if n.reduce == gpumux.ReduceSum || n.reduce == gpumux.ReduceMean {
		s.Whole = n.whole.String()
	}
	return json.Marshal(s)
}

var errBeyond = errors.New("the sum does not fit a 64-bit float")

func finite(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) }

// Value is the result of the reduce as JSON: 0 for the sum of nothing, null for the mean, the least and the greatest of nothing.
func (n *Reducer) Value() (json.RawMessage, error) {
	switch n.reduce {
	case gpumux.ReduceCount:
		return strconv.AppendInt(nil, n.count, 10), nil
	case gpumux.ReduceMin, gpumux.ReduceMax:
		if n.best == "" {
			return json.RawMessage("null"), nil
		}
		return json.RawMessage(n.best), nil
	case gpumux.ReduceSum:
		if !n.floats {
			return json.RawMessage(n.whole.String()), nil
		}
		return printed(n.total())
	}
	switch {
	case n.count == 0:
		return json.RawMessage("null"), nil
	case !n.floats:
		mean, _ := new(big.Rat).SetFrac(&n.whole, big.NewInt(n.count)).Float64()
		return printed(mean)
	}
	return printed(n.total() / float64(n.count))
}

// total is the sum of all numbers when floats are among them.
func (n *Reducer) total() float64 {
	whole, _ := new(big.Float).SetInt(&n.whole).Float64()
	all := Reducer{float: n.float, rest: n.rest}
	all.addFloat(whole)
	return all.float + all.rest
}

// printed writes a float so that it can be told from a whole number.
func printed(f float64) (json.RawMessage, error) {
	if !finite(f) {
		return nil, errBeyond
	}
	text, err := json.Marshal(f)
	if err == nil && isWhole(string(text)) {
		text = append(text, ".0"...)
	}
	return text, err
}
