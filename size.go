package gpumux

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written "8GiB", "512 MB", "1.5G" or as a plain number.
type Size int64

var units = []struct {
	name  string
	bytes float64
}{
	{"TIB", 1 << 40}, {"GIB", 1 << 30}, {"MIB", 1 << 20}, {"KIB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3},
	{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, {"B", 1},
}

// ParseSize reads a size; a bare K, M, G or T is binary, as in Kubernetes' Ki to Ti.
func ParseSize(text string) (Size, error) {
	s := strings.ToUpper(strings.TrimSpace(text))
	if rest, ok := strings.CutSuffix(s, "I"); ok {
		s = rest + "IB"
	}
	factor := 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n*factor < 1<<63) {
		return 0, fmt.Errorf("%q is not a size; write it as 8GiB, 512MB or a number of bytes", text)
	}
	return Size(n * factor), nil
}

// String writes the size with a binary unit and at most one decimal: "8GiB", "1.5GiB",
// "17B".
func (s Size) String() string {
	n := float64(s)
	for _, u := range units[:4] {
		if n >= u.bytes {
			return strings.TrimSuffix(strconv.FormatFloat(n/u.bytes, 'f', 1, 64), ".0") + u.name[:1] + "iB"
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalText writes an exact number of bytes, so that no size changes by being stored.
func (s Size) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(s), 10), nil }

// UnmarshalText is ParseSize.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// Duration is a time.Duration that text and YAML write as "1m30s", and JSON as a number
// of seconds, 90. Everywhere both are read.
type Duration time.Duration

// String is time.Duration's.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes "1m30s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads "1m30s" or a number of seconds.
func (d *Duration) UnmarshalText(text []byte) error {
	if seconds, err := strconv.ParseFloat(string(text), 64); err == nil && math.Abs(seconds) < math.MaxInt64/1e9 {
		*d = Duration(math.Round(seconds * float64(time.Second)))
		return nil
	}
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.60q is not a duration; write it as 30s, 5m or 2h", text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes seconds, such as 62.5: to the nanosecond up to 48 days.
func (d Duration) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(d)/float64(time.Second), 'f', -1, 64), nil
}

// UnmarshalJSON takes a string as UnmarshalText does, or a number of seconds. Null
// changes nothing.
func (d *Duration) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	return d.UnmarshalText([]byte(strings.Trim(string(data), `"`)))
}

// Tolerance is how many items of a map may fail: a number such as "10", or a share of all
// items such as "2.5%". In JSON it is a string or a number. Empty: any number.
type Tolerance string

// Count returns how many of so many items may fail; -1: any number, or the text is no
// tolerance. A share is rounded down.
func (t Tolerance) Count(items int64) int64 {
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
