package columns_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/text"
)

func TestNPY_IsWhatNumPyReads(t *testing.T) {
	need(t, "numpy", rig.NumPy)
	const load = `
import sys, numpy
for a in map(numpy.load, sys.argv[1:]):
    print(a.dtype.str, a.shape, a.tolist())`
	var paths, want []string
	for name, c := range map[string]struct {
		values     []any
		want, note string
	}{
		"vectors": {[]any{one("f\x04", "\x00\x00\x80\x3f\x00\x00\x00\x40", 2), one("f\x04", "\x00\x00\x00\x00\x00\x00\x80\x3f", 2)},
			"<f4 (2, 2) [[1.0, 2.0], [0.0, 1.0]]", ""},
		"matrices": {[]any{one("u\x01", "\x01\x02", 1, 2)}, "|u1 (1, 1, 2) [[[1, 2]]]", ""},
		"failed": {[]any{nil, one("f\x02", "\x00\x3c", 1), nil},
			"<f2 (3, 1) [[nan], [1.0], [nan]]", "the rows of the 2 failed items are NaN: 0, 2"},
		"whole numbers": {[]any{"1", "-2"}, "<f8 (2,) [1.0, -2.0]", ""},
		"numbers":       {[]any{"1", "2.5", "3", text.NaN, text.MinusInfinity}, "<f8 (5,) [1.0, 2.5, 3.0, nan, -inf]", ""},
		"failed number": {[]any{"1", nil, "3"}, "<f8 (3,) [1.0, nan, 3.0]", "the rows of the 1 failed items are NaN: 1"},
		"lists":         {[]any{"[[1, 2],[3,4]]", "[[1,2],[3,0.5]]"}, "<f8 (2, 2, 2) [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, 0.5]]]", ""},
		"truths":        {[]any{"true", "false"}, "|b1 (2,) [True, False]", ""},
		"none":          {nil, "<f8 (0,) []", ""},
	} {
		path, note, err := write(t, "x.npy", values(c.values...))
		require.NoError(t, err, name)
		require.Equal(t, c.note, note, name)
		paths, want = append(paths, path), append(want, c.want)
	}
	require.Equal(t, strings.Join(want, "\n"), python(t, load, paths...))
}

func TestNPY_RefusesWhatIsNoArray(t *testing.T) {
	vector := one("f\x04", "\x00\x00\x80\x3f", 1)
	for want, v := range map[string][]any{
		`item 1 has the value "a"; a .npy file holds numbers`:              {"1", `"a"`},
		`item 0 has the value {"a":[1.0]}; a .npy`:                         {around(`{"a":`, vector, "}")},
		"item 1 is an array of f4 with shape [2], and those before are an": {vector, one("f\x04", strings.Repeat("\x00", 8), 2)},
		"item 1 is an array of f8 with shape [1], and those before are an": {vector, "[1]"},
		"item 0 has the value [[1],[2,3]]":                                 {"[[1],[2,3]]"},
		"item 0 has the value []":                                          {"[]"},
		"item 0 has the value [1,true]":                                    {"[1,true]"},
		"item 0 has the value null":                                        {"null"},
		"item 1 failed, and i4 has no NaN for its row":                     {one("i\x04", "\x01\x00\x00\x00", 1), nil},
		"item 0 failed, and b1 has no NaN":                                 {nil, "true"},
		"no item succeeded":                                                {nil, nil},
		"item 1 has a whole number that no float64 holds":                  {"1", "9007199254740993", text.NaN},
		"item 2 has a whole number that no float64 holds":                  {"[1]", "[0.5]", "[9007199254740993]"},
		"item 0 has a whole number that no float64 holds":                  {"9007199254740993", nil},
		"item 0 has the value [9007199254740993,0.5]":                      {"[9007199254740993,0.5]"},
		"item 0 has the value 18446744073709551615; a .npy file holds num": {"18446744073709551615"},
	} {
		_, _, err := write(t, "x.npy", values(v...))
		require.ErrorContains(t, err, want)
	}
	results := values("1", "2")
	_, _, err := write(t, "x.npy", results[1:])
	require.ErrorContains(t, err, "item 1 comes where item 0 belongs")
}
