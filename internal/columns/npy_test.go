package columns_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
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

// The rows of an array are the items, as Python writes them as JSON.
func TestNPY_RowsAreItems(t *testing.T) {
	need(t, "numpy", rig.NumPy)
	const save = `
import json, sys, numpy
for i, kind in enumerate("? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8".split()):
    top = 1 if kind == "?" else 0.5 if kind[0] == "f" else numpy.iinfo(kind).max
    for shape in ((4,), (2, 2), (2, 1, 2), (4, 1), (0,), (0, 3)):
        array = numpy.array([0, 1, top, 1], kind)[:None if 0 not in shape else 0].reshape(shape)
        name = f"{sys.argv[1]}/{i}{len(shape)}{shape[0]}"
        numpy.save(name + ".npy", array)
        text = [json.dumps(x, separators=(",", ":")) for x in array.tolist()]
        open(name + ".txt", "w").write("".join(line + "\n" for line in text))
for i, array in enumerate([numpy.array([1, -2], ">i2"), numpy.array([[0.5, 0.25], [3, 4]], ">f4"), numpy.array([2**63], ">u8"), numpy.array([1.5], ">f2")]):
    for version in (1, 0), (2, 0), (3, 0):
        with open(f"{sys.argv[1]}/big{i}{version[0]}.npy", "wb") as file: numpy.lib.format.write_array(file, array, version=version)
        open(f"{sys.argv[1]}/big{i}{version[0]}.txt", "w").write("".join(json.dumps(x, separators=(",", ":")) + "\n" for x in array.tolist()))
bad = {"complex": numpy.zeros(2, "c8"), "fortran": numpy.zeros((2, 3), order="F"),
    "number": numpy.zeros(()), "fields": numpy.zeros(2, [("a", "i4")]), "none": numpy.zeros((2, 0))}
for name, array in bad.items(): numpy.save(f"{sys.argv[1]}/{name}.npy", array)
numpy.savez(f"{sys.argv[1]}/many.npz", a=array)`
	dir := t.TempDir()
	python(t, save, dir)
	texts, err := filepath.Glob(dir + "/*.txt")
	require.NoError(t, err)
	require.Len(t, texts, 12*6+4*3)
	for _, name := range texts {
		want, err := os.ReadFile(name)
		require.NoError(t, err)
		data, err := os.ReadFile(strings.TrimSuffix(name, "txt") + "npy")
		require.NoError(t, err)
		got, err := rowsOf(t, data, "x.npy")
		require.NoError(t, err)
		require.Equal(t, string(want), got, name)
	}
	for name, says := range map[string]string{
		"complex.npy": "it is an array of '<c8', which is none of numbers of up to 64 bits or truths; save array.astype('f8')",
		"fortran.npy": "its numbers lie in Fortran's order; save numpy.ascontiguousarray(array)",
		"number.npy":  "it is an array without dimensions, a single value; save numpy.atleast_1d(array)",
		"fields.npy":  "it is an array of [('a', '<i4')], which is none of numbers",
		"none.npy":    "its rows are empty: the array has the shape (2, 0)",
		"many.npz":    "it is an archive of arrays, .npz; save one of them",
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		_, err = rowsOf(t, data, "x.npy")
		require.ErrorAs(t, err, new(*gpumux.SourceError), name)
		require.ErrorContains(t, err, "x.npy: "+says, name)
	}
	good, err := os.ReadFile(filepath.Join(dir, "822.npy"))
	require.NoError(t, err)
	for says, data := range map[string][]byte{"it has 31 bytes for 2 rows of 16": good[:len(good)-1], "it has 33 bytes for 2 rows": append(good, 0), "x.npy: it does not begin as an array": good[:50]} {
		_, err := rowsOf(t, data, "x.npy")
		require.ErrorAs(t, err, new(*gpumux.SourceError), says)
		require.ErrorContains(t, err, says)
	}
	_, err = rowsOf(t, good, "x.npy", "a")
	require.ErrorContains(t, err, "x.npy: an array has no columns")
}

// What is written is what is read, whoever has a Python.
func TestNPY_ThereAndBack(t *testing.T) {
	for _, v := range [][]any{{"[0.5,1.0]", "[2.0,3.0]"}, {"1.0", "-2.0"}, {"true", "false"}, {"[[1.0],[2.0]]"}} {
		path, _, err := write(t, "x.npy", values(v...))
		require.NoError(t, err)
		for i, line := range linesOf(t, path) {
			require.Equal(t, v[i], line)
		}
	}
}
