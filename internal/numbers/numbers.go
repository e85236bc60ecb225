// Package numbers reduces values in gpumux's own ways: sum, mean, min, max and count.
//
// It owns what a number is and how exact a reduce is. It never sees a task, an item or a
// store. Nothing runs between calls.
package numbers

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
)

// Reducer reduces numbers in one of gpumux's own ways. A number without a fraction and an
// exponent is whole, and exact. All others are 64-bit floats. A sum is exact until it is
// printed.
type Reducer struct {
	reduce string
	count  int64
	// sum is of the finite numbers. floats says that not all were whole.
	sum    big.Float
	floats bool
	// odd is the sum of the infinities and NaN.
	odd float64
	// best is the least or greatest number so far, written as it was given.
	best    *big.Float
	written string
}

const (
	// maxDigits is how many digits a whole number may have.
	maxDigits = 600
	// floatBits holds any sum of such numbers and 64-bit floats: from 2^2000 down to
	// 2^-1074, and room for the carries of 2^60 items.
	floatBits = 2000 + 1074 + 60
)

// New begins a reduce of gpumux's own, such as gpumux.ReduceSum.
func New(reduce string) *Reducer { return &Reducer{reduce: reduce} }

func isWhole(written string) bool { return !strings.ContainsAny(written, ".eE") }

// Add adds one value as JSON.
func (n *Reducer) Add(value []byte) error {
	n.count++
	if n.reduce == gpumux.ReduceCount {
		return nil
	}
	written := string(value)
	f, odd := text.NonFinite[written]
	if !odd && (written == "" || written[0] != '-' && (written[0] < '0' || written[0] > '9')) {
		return errors.New("it takes numbers")
	}
	x := new(big.Float).SetPrec(floatBits)
	switch {
	case odd:
	case isWhole(written) && len(written) <= maxDigits:
		x.SetString(written)
	case isWhole(written):
		return fmt.Errorf("the number has more than %d digits", maxDigits)
	default:
		var err error
		if f, err = strconv.ParseFloat(written, 64); err != nil {
			return errors.New("the number does not fit a 64-bit float")
		}
		x.SetFloat64(f)
	}
	switch {
	case n.reduce == gpumux.ReduceMin || n.reduce == gpumux.ReduceMax:
		n.compare(written, x, f)
	case odd:
		n.floats = true
		n.odd += f
	default:
		n.floats = n.floats || !isWhole(written)
		n.sum.SetPrec(floatBits).Add(&n.sum, x)
	}
	return nil
}

// compare keeps the better of two numbers, and the first of equal ones. Nothing is better
// than NaN, as in a sum.
func (n *Reducer) compare(written string, x *big.Float, f float64) {
	if n.written == text.NaN || math.IsNaN(f) {
		n.written = text.NaN
		return
	}
	if math.IsInf(f, 0) {
		x.SetFloat64(f)
	}
	if n.best == nil || n.reduce == gpumux.ReduceMin && x.Cmp(n.best) < 0 || n.reduce == gpumux.ReduceMax && x.Cmp(n.best) > 0 {
		n.best, n.written = x, written
	}
}

// Value is the result of the reduce as JSON: 0 for the sum of nothing, null for the mean,
// the least and the greatest of nothing.
//
//workflowcheck:ignore
func (n *Reducer) Value() (json.RawMessage, error) {
	switch {
	case n.reduce == gpumux.ReduceCount:
		return strconv.AppendInt(nil, n.count, 10), nil
	case n.reduce == gpumux.ReduceSum && !n.floats:
		return n.sum.Append(nil, 'f', 0), nil
	case n.reduce != gpumux.ReduceSum && n.count == 0:
		return json.RawMessage("null"), nil
	case n.reduce == gpumux.ReduceMin || n.reduce == gpumux.ReduceMax:
		return json.RawMessage(n.written), nil
	}
	total := &n.sum
	if n.reduce == gpumux.ReduceMean {
		total = new(big.Float).Quo(total, new(big.Float).SetInt64(n.count))
	}
	f, _ := total.Float64()
	if n.odd != 0 {
		f = n.odd
	} else if math.IsInf(f, 0) {
		return nil, errors.New("the sum does not fit a 64-bit float")
	}
	written, err := json.Marshal(gpumux.Float(f))
	if err == nil && n.odd == 0 && isWhole(string(written)) {
		written = append(written, ".0"...) // so that it can be told from a whole number
	}
	return written, err
}
