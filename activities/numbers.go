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

// numbers reduces numbers in one of gpumux's own ways. Numbers written without a fraction
// and an exponent are whole: sums and comparisons of them are exact, whatever their size.
// All others are 64-bit floats. Their sum is compensated (Neumaier), so it is about as
// good as one with twice the digits.
type numbers struct {
	reduce string
	count  int64
	// whole is the sum of the whole numbers.
	whole big.Int
	// float is the sum of the floats, rest what rounding has lost of it. floats says that
	// there were any.
	floats      bool
	float, rest float64
	// odd is the sum of the infinities and NaN.
	odd float64
	// best is the least or greatest number so far, as it was written.
	best string
}

var errNoNumber = errors.New("it takes numbers")

// add adds one value as JSON.
func (n *numbers) add(value []byte) error {
	n.count++
	if n.reduce == gpumux.ReduceCount {
		return nil
	}
	written := string(value)
	f, odd := oddNumbers[written]
	switch {
	case !odd && (written == "" || written[0] != '-' && (written[0] < '0' || written[0] > '9')):
		return errNoNumber
	case n.reduce == gpumux.ReduceMin || n.reduce == gpumux.ReduceMax:
		return n.compare(written)
	case odd:
		n.floats = true
		n.odd += f
		return nil
	case isWhole(written):
		i, _ := new(big.Int).SetString(written, 10) // JSON was checked before
		n.whole.Add(&n.whole, i)
		return nil
	}
	f, err := float(written)
	if err != nil {
		return err
	}
	n.floats = true
	n.addFloat(f)
	return nil
}

// oddNumbers are those that JSON lacks, as tasks write them.
var oddNumbers = map[string]float64{
	text.NaN: math.NaN(), text.Infinity: math.Inf(1), text.MinusInfinity: math.Inf(-1),
}

func isWhole(written string) bool { return !strings.ContainsAny(written, ".eE") }

func float(written string) (float64, error) {
	f, err := strconv.ParseFloat(written, 64)
	if err != nil {
		return 0, errors.New("the number does not fit a 64-bit float")
	}
	return f, nil
}

func (n *numbers) addFloat(f float64) {
	sum := n.float + f
	if math.Abs(n.float) >= math.Abs(f) {
		n.rest += n.float - sum + f
	} else {
		n.rest += f - sum + n.float
	}
	n.float = sum
}

// compare keeps the better of two numbers, and the first of equal ones. Nothing is better
// than NaN, as in a sum.
func (n *numbers) compare(written string) error {
	if n.best == text.NaN || written == text.NaN {
		n.best = text.NaN
		return nil
	}
	candidate, err := exact(written)
	if err != nil || n.best == "" {
		n.best = written
		return err
	}
	old, err := exact(n.best)
	if order := candidate.Cmp(old); n.reduce == gpumux.ReduceMin && order < 0 || n.reduce == gpumux.ReduceMax && order > 0 {
		n.best = written
	}
	return err
}

// exact is a whole number itself, or the float that another one stands for.
func exact(written string) (*big.Float, error) {
	f, odd := oddNumbers[written]
	if !odd && isWhole(written) {
		whole, _ := new(big.Int).SetString(written, 10)
		return new(big.Float).SetInt(whole), nil // with as many digits as it takes
	}
	if !odd {
		var err error
		if f, err = float(written); err != nil {
			return nil, err
		}
	}
	return big.NewFloat(f), nil
}

// value is the result of the reduce as JSON: 0 for the sum of nothing, null for the mean,
// the least and the greatest of nothing.
func (n *numbers) value() (json.RawMessage, error) {
	switch {
	case n.reduce == gpumux.ReduceCount:
		return strconv.AppendInt(nil, n.count, 10), nil
	case n.reduce == gpumux.ReduceSum && !n.floats:
		return json.RawMessage(n.whole.String()), nil
	case n.reduce == gpumux.ReduceSum:
		return n.printed(n.total())
	case n.count == 0:
		return json.RawMessage("null"), nil
	case n.reduce == gpumux.ReduceMin || n.reduce == gpumux.ReduceMax:
		return json.RawMessage(n.best), nil
	case !n.floats:
		mean, _ := new(big.Rat).SetFrac(&n.whole, big.NewInt(n.count)).Float64()
		return n.printed(mean)
	}
	return n.printed(n.total() / float64(n.count))
}

// total is the sum of all numbers when floats are among them.
func (n *numbers) total() float64 {
	if n.odd != 0 {
		return n.odd
	}
	whole, _ := new(big.Float).SetInt(&n.whole).Float64()
	all := numbers{float: n.float, rest: n.rest}
	all.addFloat(whole)
	return all.float + all.rest
}

// printed writes a float so that it can be told from a whole number.
func (n *numbers) printed(f float64) (json.RawMessage, error) {
	if n.odd == 0 && (math.IsInf(f, 0) || math.IsNaN(f)) {
		return nil, errors.New("the sum does not fit a 64-bit float")
	}
	written, err := json.Marshal(gpumux.Float(f))
	if err == nil && n.odd == 0 && isWhole(string(written)) {
		written = append(written, ".0"...)
	}
	return written, err
}
