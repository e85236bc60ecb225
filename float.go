package gpumux

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/gpumux/gpumux/internal/text"
)

// Float is a number in an item or a value that may be NaN or infinite, which JSON has no
// number for. Tasks in Python and R take and return such numbers as they are.
type Float float64

// MarshalJSON writes NaN and the infinities as docs/wire.md says.
func (f Float) MarshalJSON() ([]byte, error) {
	switch x := float64(f); {
	case math.IsNaN(x):
		return []byte(text.NaN), nil
	case math.IsInf(x, 1):
		return []byte(text.Infinity), nil
	case math.IsInf(x, -1):
		return []byte(text.MinusInfinity), nil
	default:
		return json.Marshal(x)
	}
}

// UnmarshalJSON takes a number, or the name of one that JSON lacks.
func (f *Float) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		return json.Unmarshal(data, (*float64)(f))
	}
	var name string
	if err := json.Unmarshal(data, &name); err != nil {
		return err
	}
	switch name {
	case "NaN":
		*f = Float(math.NaN())
	case "Infinity":
		*f = Float(math.Inf(1))
	case "-Infinity":
		*f = Float(math.Inf(-1))
	default:
		return fmt.Errorf("the text %.40q is no number", name)
	}
	return nil
}
