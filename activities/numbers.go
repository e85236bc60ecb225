package activities

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
)

// numbers reduces numbers in one of gpumux's own ways. A number without a fraction and an
// exponent is whole, and exact whatever its size. All others are 64-bit floats. A sum is
// exact until it is printed.
type numbers struct {
	reduce string
	count  int64
	// whole is the sum of the whole numbers, float that of the floats. floats says that
	// there were any.
	whole  big.Int
	float  *big.Float
	floats bool
	// odd is the sum of the infinities and NaN.
	odd float64
	// best is the least or greatest number so far, written as it was given.
	best    *big.Float
	written string
}

// floatBits holds any sum of 64-bit floats: from 2^1024 down to 2^-1074, and room for the
// carries of 2^60 items.
const floatBits = 1024 + 1074 + 60

func newNumbers(reduce string) *numbers {
	return &numbers{reduce: reduce, float: new(big.Float).SetPrec(floatBits)}
}

// oddNumbers are those that JSON lacks, as tasks write them.
var oddNumbers = map[string]float64{
	text.NaN: math.NaN(), text.Infinity: math.Inf(1), text.MinusInfinity: math.Inf(-1),
}

func isWhole(written string) bool { return !strings.ContainsAny(written, ".eE") }

// add adds one value as JSON.
func (n *numbers) add(value []byte) error {
	n.count++
	if n.reduce == gpumux.ReduceCount {
		return nil
	}
	written := string(value)
	f, odd := oddNumbers[written]
	if !odd && (written == "" || written[0] != '-' && (written[0] < '0' || written[0] > '9')) {
		return errors.New("it takes numbers")
	}
	var whole *big.Int
	if !odd && isWhole(written) {
		whole, _ = new(big.Int).SetString(written, 10) // JSON was checked before
	} else if !odd {
		var err error
		if f, err = strconv.ParseFloat(written, 64); err != nil {
			return errors.New("the number does not fit a 64-bit float")
		}
	}
	switch {
	case n.reduce == gpumux.ReduceMin || n.reduce == gpumux.ReduceMax:
		n.compare(written, whole, f)
	case whole != nil:
		n.whole.Add(&n.whole, whole)
	case odd:
		n.floats = true
		n.odd += f
	default:
		n.floats = true
		n.float.Add(n.float, big.NewFloat(f))
	}
	return nil
}

// compare keeps the better of two numbers, and the first of equal ones. Nothing is better
// than NaN, as in a sum.
func (n *numbers) compare(written string, whole *big.Int, f float64) {
	if n.written == text.NaN || written == text.NaN {
		n.written = text.NaN
		return
	}
	candidate := big.NewFloat(f)
	if whole != nil {
		candidate = new(big.Float).SetInt(whole) // with as many digits as it takes
	}
	better := n.best == nil
	if !better {
		order := candidate.Cmp(n.best)
		better = n.reduce == gpumux.ReduceMin && order < 0 || n.reduce == gpumux.ReduceMax && order > 0
	}
	if better {
		n.best, n.written = candidate, written
	}
}

// value is the result of the reduce as JSON: 0 for the sum of nothing, null for the mean,
// the least and the greatest of nothing.
func (n *numbers) value() (json.RawMessage, error) {
	switch {
	case n.reduce == gpumux.ReduceCount:
		return strconv.AppendInt(nil, n.count, 10), nil
	case n.reduce == gpumux.ReduceSum && !n.floats:
		return json.RawMessage(n.whole.String()), nil
	case n.reduce != gpumux.ReduceSum && n.count == 0:
		return json.RawMessage("null"), nil
	case n.reduce == gpumux.ReduceMin || n.reduce == gpumux.ReduceMax:
		return json.RawMessage(n.written), nil
	}
	// Every 64-bit float is a fraction.
	total, _ := n.float.Rat(nil)
	total.Add(total, new(big.Rat).SetInt(&n.whole))
	if n.reduce == gpumux.ReduceMean {
		total.Quo(total, new(big.Rat).SetInt64(n.count))
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
