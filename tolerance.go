package gpumux

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Tolerance is how many items of a map may fail: a number such as "10", or a share of all
// items such as "2.5%". In JSON it is a string or a number. Empty: any number.
type Tolerance string

// Of returns how many of so many items may fail; -1: any number, or the text is no
// tolerance. A share is rounded down.
func (t Tolerance) Of(items int64) int64 {
	count, share, err := t.parse()
	switch {
	case t == "" || err != nil:
		return -1
	case share >= 0:
		part := float64(items) * share / 100
		return int64(math.Floor(part + part*1e-14)) // 0.57% of 10,000 is 57
	}
	return count
}

// parse reads a number, or a share in percent, which is -1 for a number.
func (t Tolerance) parse() (count int64, share float64, err error) {
	text, percent := strings.CutSuffix(string(t), "%")
	if !percent {
		if count, err = strconv.ParseInt(text, 10, 64); err == nil && count >= 0 && count <= MaxItems {
			return count, -1, nil
		}
	} else if share, err = strconv.ParseFloat(text, 64); err == nil && share >= 0 && share <= 100 {
		return 0, share, nil
	}
	return 0, -1, fmt.Errorf("%.60q is neither a number of items nor a share of them; write it as 10 or 2.5%%", string(t))
}

// UnmarshalText refuses what is no tolerance.
func (t *Tolerance) UnmarshalText(text []byte) error {
	read := Tolerance(text)
	if _, _, err := read.parse(); err != nil && read != "" {
		return err
	}
	*t = read
	return nil
}

// UnmarshalJSON takes a string as UnmarshalText does, or a number of items. Null changes
// nothing.
func (t *Tolerance) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	return t.UnmarshalText([]byte(strings.Trim(string(data), `"`)))
}
