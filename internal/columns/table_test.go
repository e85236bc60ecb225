package columns_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/text"
)

// linesOf reads a file back as JSON lines.
func linesOf(t *testing.T, path string, named ...string) []string {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	info, err := file.Stat()
	require.NoError(t, err)
	lines, err := columns.Items(t.Context(), file, info.Size(), path, named)
	require.NoError(t, err)
	text, err := io.ReadAll(lines)
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

var vector = one("f\x04", "\x00\x00\x80\x3f\xcd\xcc\xcc\x3d", 2)

// faults are the schema of the columns of faults.
const faults = ", fault: utf8, fault_message: utf8"

// good is what those columns have for a row that succeeded.
const good = `,"fault":null,"fault_message":null}`

var tables = map[string]struct {
	values []any
	schema string
	rows   []string
}{
	"vectors": {[]any{vector, nil, vector}, "index: int64, value: fixed_size_list<element: float32>[2]" + faults, []string{
		`{"index":0,"value":[1.0,0.1]` + good,
		`{"index":1,"value":null,"fault":"task_error","fault_message":"bad item"}`,
		`{"index":2,"value":[1.0,0.1]` + good,
	}},
	"fields": {[]any{around(`{"label":"a\"b","vector":`, vector, `,"n":1}`), `{"n":2.5,"label":"\u00e9","fault":true,"more":{"x":[1]}}`},
		"index: int64, label: utf8, vector: fixed_size_list<element: float32>[2], n: float64, value.fault: bool, more: utf8" + faults,
		[]string{
			`{"index":0,"label":"a\"b","vector":[1.0,0.1],"n":1.0,"value.fault":null,"more":null` + good,
			`{"index":1,"label":"é","vector":null,"n":2.5,"value.fault":true,"more":"{\"x\":[1]}"` + good,
		}},
	"matrices": {[]any{one("i\x02", "\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00\x06\x00", 2, 3)},
		"index: int64, value: fixed_size_list<element: fixed_size_list<element: int16>[3]>[2]" + faults,
		[]string{`{"index":0,"value":[[1,2,3],[4,5,6]]` + good}},
	"lists": {[]any{"[1,2]", "[]", nil, "[0.5]"}, "index: int64, value: list<element: float64>" + faults, []string{
		`{"index":0,"value":[1.0,2.0]` + good, `{"index":1,"value":[]` + good,
		`{"index":2,"value":null,"fault":"task_error","fault_message":"bad item"}`, `{"index":3,"value":[0.5]` + good,
	}},
	"empty arrays": {[]any{one("f\x04", "", 0), vector}, "index: int64, value: list<element: float32>" + faults, []string{
		`{"index":0,"value":[]` + good, `{"index":1,"value":[1.0,0.1]` + good}},
	"failed matrices": {[]any{nil, one("u\x01", "\x01\x02", 2, 1)},
		"index: int64, value: fixed_size_list<element: fixed_size_list<element: uint8>[1]>[2]" + faults,
		[]string{`{"index":0,"value":null,"fault":"task_error","fault_message":"bad item"}`, `{"index":1,"value":[[1],[2]]` + good}},
	"whole": {[]any{"9007199254740993", "null", "-1"}, "index: int64, value: int64" + faults, []string{
		`{"index":0,"value":9007199254740993` + good, `{"index":1,"value":null` + good,
		`{"index":2,"value":-1` + good}},
	"unsigned": {[]any{"1", "18446744073709551615", nil, "0"}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"1"` + good, `{"index":1,"value":"18446744073709551615"` + good,
		`{"index":2,"value":null,"fault":"task_error","fault_message":"bad item"}`, `{"index":3,"value":"0"` + good}},
	"beside NaN": {[]any{`{"id":9007199254740993,"u":` + text.NaN + `}`, `{"id":` + text.NaN + `,"u":18446744073709551615}`},
		"index: int64, id: utf8, u: utf8" + faults, []string{
			`{"index":0,"id":"9007199254740993","u":"\"NaN\""` + good, `{"index":1,"id":"\"NaN\"","u":"18446744073709551615"` + good}},
	"beside fractions": {[]any{"9007199254740993", "0.5", text.NaN, "null"}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"9007199254740993"` + good, `{"index":1,"value":"0.5"` + good, `{"index":2,"value":"\"NaN\""` + good, `{"index":3,"value":null` + good}},
	"that floats hold": {[]any{"9007199254740992", "0.5", "-9007199254740992"}, "index: int64, value: float64" + faults, []string{
		`{"index":0,"value":9007199254740992.0` + good, `{"index":1,"value":0.5` + good, `{"index":2,"value":-9007199254740992.0` + good}},
	"truths beside numbers": {[]any{"[true]", "[1]"}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"[true]"` + good, `{"index":1,"value":"[1]"` + good}},
	"wide in lists": {[]any{"[9007199254740993,1]", "[0.5,1]"}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"[9007199254740993,1]"` + good, `{"index":1,"value":"[0.5,1]"` + good}},
	"wide in a list": {[]any{"[9007199254740993,0.5]", "[1]"}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"[9007199254740993,0.5]"` + good, `{"index":1,"value":"[1]"` + good}},
	"out of range": {[]any{"1e400", "0.5"}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"1e400"` + good, `{"index":1,"value":"0.5"` + good}},
	"no fields": {[]any{"{}", `{"a":1}`, "{}"}, "index: int64, a: int64" + faults, []string{
		`{"index":0,"a":null` + good, `{"index":1,"a":1` + good, `{"index":2,"a":null` + good}},
	"no fields at all": {[]any{"{}", nil}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"{}"` + good, `{"index":1,"value":null,"fault":"task_error","fault_message":"bad item"}`}},
	"no fields in a field": {[]any{`{"a":{}}`, `{"a":null}`}, "index: int64, a: utf8" + faults, []string{
		`{"index":0,"a":"{}"` + good, `{"index":1,"a":null` + good}},
	"no unsigned": {[]any{"-1", "18446744073709551615"}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"-1"` + good, `{"index":1,"value":"18446744073709551615"` + good}},
	"no unsigned either": {[]any{"18446744073709551615", "-1", "1.5"}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"18446744073709551615"` + good, `{"index":1,"value":"-1"` + good, `{"index":2,"value":"1.5"` + good}},
	"floats": {[]any{text.NaN, "1", text.MinusInfinity}, "index: int64, value: float64" + faults, []string{
		`{"index":0,"value":` + text.NaN + good, `{"index":1,"value":1.0` + good,
		`{"index":2,"value":` + text.MinusInfinity + good}},
	"names of floats": {[]any{`"NaN"`, `"Infinity"`}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"NaN"` + good, `{"index":1,"value":"Infinity"` + good}},
	"lists of text": {[]any{"[]", `["a","\u00e9"]`, nil}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"[]"` + good, `{"index":1,"value":"[\"a\",\"\\u00e9\"]"` + good,
		`{"index":2,"value":null,"fault":"task_error","fault_message":"bad item"}`,
	}},
	"objects around arrays": {[]any{around(`[{"n":1,"v":`, vector, `}]`)}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"[{\"n\":1,\"v\":[1.0,0.1]}]"` + good}},
	"odd": {[]any{"1", `"NaN"`, `"text"`, "12345678901234567890", "[1,[2]]"}, "index: int64, value: utf8" + faults, []string{
		`{"index":0,"value":"1"` + good, `{"index":1,"value":"\"NaN\""` + good,
		`{"index":2,"value":"\"text\""` + good,
		`{"index":3,"value":"12345678901234567890"` + good,
		`{"index":4,"value":"[1,[2]]"` + good}},
	"halves": {[]any{one("f\x02", "\x00\x3c\x66\x2e", 2)}, "index: int64, value: fixed_size_list<element: float32>[2]" + faults,
		[]string{`{"index":0,"value":[1.0,0.099975586]` + good}},
	"truths": {[]any{one("b\x01", "\x01\x00\x01", 3), "[true,true,false]"},
		"index: int64, value: fixed_size_list<element: bool>[3]" + faults, []string{
			`{"index":0,"value":[true,false,true]` + good,
			`{"index":1,"value":[true,true,false]` + good}},
	"failed": {[]any{nil}, "index: int64" + faults, []string{`{"index":0,"fault":"task_error","fault_message":"bad item"}`}},
	"none":   {nil, "index: int64" + faults, []string{""}},
}

func TestTable_ThereAndBack(t *testing.T) {
	for name, c := range tables {
		t.Run(name, func(t *testing.T) {
			path, err := write(t, values(c.values...))
			require.NoError(t, err)
			require.Equal(t, c.rows, linesOf(t, path))
			require.Equal(t, c.schema, schemaOf(t, path))
		})
	}
}

// Files are what pyarrow, pandas and Polars read, with the types of arrays.
func TestTable_IsWhatPythonReads(t *testing.T) {
	need(t, "pyarrow, pandas, polars", rig.Framework)
	const load = `
import sys, pyarrow.parquet, pandas, polars
def plain(v):
    if isinstance(v, dict): return {name: plain(x) for name, x in v.items()}
    return [plain(x) for x in v] if hasattr(v, "__len__") and not isinstance(v, str) else v
for name in sys.argv[1:]:
    table, frame, polar = pyarrow.parquet.read_table(name), pandas.read_parquet(name), polars.read_parquet(name)
    values = table.column("value").to_pylist()
    print(table.schema.field("value").type, values, plain(frame["value"]) == values, polar["value"].to_list() == values)`
	var paths, want []string
	for _, c := range []struct {
		values     []any
		kind, want string
	}{
		{[]any{one("f\x04", "\x00\x00\x80\x3f\x00\x00\x00\x3f", 2), nil}, "fixed_size_list<element: float not null>[2]", "[[1.0, 0.5], None]"},
		{[]any{nil, one("i\x02", "\x01\x00\x02\x00", 2, 1)},
			"fixed_size_list<element: fixed_size_list<element: int16 not null>[1] not null>[2]", "[None, [[1], [2]]]"},
		{[]any{"[1,2]", nil, "[0.5]"}, "list<element: double not null>", "[[1.0, 2.0], None, [0.5]]"},
	} {
		path, err := write(t, values(c.values...))
		require.NoError(t, err)
		paths, want = append(paths, path), append(want, c.kind+" "+c.want+" True True")
	}
	require.Equal(t, strings.Join(want, "\n"), python(t, load, paths...))
}

// Files of others are read as pyarrow reads them.
func TestItems_OfFilesThatPyarrowWrites(t *testing.T) {
	need(t, "pyarrow, pandas", rig.Framework)
	const save = `
import datetime, os, sys, pandas, pyarrow, pyarrow.parquet
os.chdir(sys.argv[1])
times = pyarrow.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 678), None], pyarrow.timestamp("us"))
table = pyarrow.table({"t": times, "s": pyarrow.StructArray.from_arrays([times], ["x"]), "l": [times.to_pylist()] * 2})
pyarrow.parquet.write_table(table, "times.parquet", use_deprecated_int96_timestamps=True)
zone = pyarrow.table({"t": times.cast(pyarrow.timestamp("us", "UTC"))})
pyarrow.parquet.write_table(zone, "zone.parquet")
none = pyarrow.record_batch({"a": [1, 2]}).select([])
pyarrow.parquet.write_table(pyarrow.Table.from_batches([none]), "none.parquet")
pandas.DataFrame(index=range(2)).to_parquet("frame.parquet", index=False)
read = pyarrow.parquet.read_table("times.parquet")
print(*[field.type for field in read.schema], read["t"][0].as_py().isoformat())`
	dir := t.TempDir()
	const text = "2026-01-02T03:04:05.000678"
	require.Equal(t, "timestamp[ns] struct<x: timestamp[ns]> list<element: timestamp[ns]> "+text, python(t, save, dir))
	require.Equal(t, []string{`{"t":"` + text + `","s":{"x":"` + text + `"},"l":["` + text + `",null]}`, `{"t":null,"s":{"x":null},"l":["` + text + `",null]}`},
		linesOf(t, filepath.Join(dir, "times.parquet")))
	require.Equal(t, `{"t":"`+text+`Z"}`, linesOf(t, filepath.Join(dir, "zone.parquet"))[0])
	for _, name := range []string{"none.parquet", "frame.parquet"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		_, err = rowsOf(t, data, name)
		require.ErrorAs(t, err, new(*gpumux.SourceError))
		require.ErrorContains(t, err, name+": the table has no columns; save it with")
	}
}

func TestTable_KeysAndItems(t *testing.T) {
	results := values(`{"key":1}`, nil)
	for i := range results {
		results[i].Key, results[i].Item = json.RawMessage(`"k"`), json.RawMessage(`{"id":"k"}`)
	}
	path, err := write(t, results)
	require.NoError(t, err)
	require.Equal(t, []string{`{"index":0,"key":"k","item":"{\"id\":\"k\"}","value.key":1` + good,
		`{"index":1,"key":"k","item":"{\"id\":\"k\"}","value.key":null,"fault":"task_error","fault_message":"bad item"}`}, linesOf(t, path))
}

// schemaOf is Arrow's schema of a file on one line.
func schemaOf(t *testing.T, path string) string {
	f, err := file.OpenParquetFile(path, false)
	require.NoError(t, err)
	defer f.Close()
	r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	require.NoError(t, err)
	schema, err := r.Schema()
	require.NoError(t, err)
	var fields []string
	for _, f := range schema.Fields() {
		fields = append(fields, f.Name+": "+strings.ReplaceAll(f.Type.String(), ", nullable", ""))
	}
	return strings.Join(fields, ", ")
}

func TestTable_LaterResultsHaveToFit(t *testing.T) {
	large := `"` + strings.Repeat("x", 33<<20) + `"`
	for want, v := range map[string][]any{
		"the first 32 MiB of results settle: value is 1, and is to be utf8": {large, "1"},
		`it has a field "b", for which there is no column`:                  {`{"a":` + large + `}`, `{"b":1}`},
		"it is 1, and is to be an object":                                   {`{"a":` + large + `}`, `1`},
	} {
		_, err := write(t, values(v...))
		require.ErrorContains(t, err, want)
	}
	for _, v := range [][]any{{"0.5", "9007199254740993"}, {"[0.5]", "[9007199254740993]"}, {"1", "0.5"}, {"[1]", "[1,2]"}, {"null", `"a"`}} {
		_, err := write(t, values(`{"a":`+large+`,"b":`+v[0].(string)+`}`, `{"b":`+v[1].(string)+`}`))
		require.ErrorContains(t, err, "item 1 does not fit the columns", v)
	}
	path, err := write(t, values(large, nil, "null", `"y"`))
	require.NoError(t, err)
	require.Equal(t, []string{`{"value":null}`, `{"value":null}`, `{"value":"y"}`}, linesOf(t, path, "value")[1:])
}

func TestItems_Columns(t *testing.T) {
	path, err := write(t, values(`{"a":1,"b":[1,2]}`, `{"a":2,"b":[3,4]}`))
	require.NoError(t, err)
	require.Equal(t, []string{`{"b":[1,2],"a":1}`, `{"b":[3,4],"a":2}`}, linesOf(t, path, "b", "a"))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = rowsOf(t, data, "x.parquet", "c")
	require.ErrorContains(t, err, `x.parquet: there is no column "c"; it has index, a, b, fault, fault_message`)
	_, err = rowsOf(t, data[:len(data)/2], "x.parquet")
	require.ErrorContains(t, err, "x.parquet: not read as .parquet")
}

// What pyarrow writes of each type is one thing with Arrow's schema in the file and
// without.
func TestItems_Types(t *testing.T) {
	want := []string{
		`{"i8":1,"u64":18446744073709551615,"f32":0.1,"f16":0.1,"f64":0.1,"b":true,"s":"é\"x","bin":"/wA=","fsb":"YWI=","d":"2026-01-02",` +
			`"ts":"2026-01-02T03:04:05.6","tz":"2026-01-02T03:04:05Z","berlin":"2026-01-02T03:04:05Z","tm":"01:02:03","dec":"-0.05","l":[1,null],"ll":[[1.5],[]],` +
			`"st":{"a":1,"b":["x"]},"ls":[{"a":1,"b":[2,3]},{"a":null,"b":[]}],"dict":"x","fsl":[1.0,2.0],"m":[{"key":"k","value":1}],` +
			`"n":null,"ls2":"a","sv":"v","dur":1500,"json":"{\"a\": 1}","uuid":"00010203-0405-0607-0809-0a0b0c0d0e0f"}`,
		`{"i8":null,"u64":0,"f32":` + text.NaN + `,"f16":1.0,"f64":null,"b":null,"s":null,"bin":null,"fsb":"Y2Q=","d":"1969-12-31",` +
			`"ts":"1969-01-01T00:00:00.5","tz":null,"berlin":null,"tm":null,"dec":"123.45","l":[],"ll":null,"st":null,"ls":[null],"dict":"y",` +
			`"fsl":[3.0,4.0],"m":[],"n":null,"ls2":null,"sv":null,"dur":null,"json":null,"uuid":null}`,
	}
	for _, name := range []string{"kinds.parquet", "plain.parquet"} {
		require.Equal(t, want, linesOf(t, "testdata/"+name), name)
	}
}

// A table is the same items whichever way pyarrow writes it.
func TestItems_AreThoseOfTheTable(t *testing.T) {
	need(t, "pyarrow", rig.Framework)
	const save = `
import datetime, decimal, sys, pyarrow as pa, pyarrow.parquet
D, units = decimal.Decimal, ("s", "ms", "us", "ns")
day, moment = datetime.date(2024, 2, 29), 1_700_000_000
columns = {
    "d32": pa.array([D("1.10"), D("-3.00"), None], pa.decimal32(5, 2)), "d64": pa.array([D("1.10"), D("-3.00"), None], pa.decimal64(12, 2)),
    "d128": pa.array([D("0.00000001"), D("123456789012345678901234567890.12345678"), None], pa.decimal128(38, 8)),
    "d256": pa.array([D("1.10"), D("-3.00"), None], pa.decimal256(50, 2)), "d0": pa.array([D("100"), D("-3"), None], pa.decimal128(5, 0)),
    "day": pa.array([day, datetime.date(1, 1, 1), None]), "day64": pa.array([day, day, None], pa.date64()),
    "time": pa.array([datetime.time(1, 2, 3), datetime.time(23, 59, 0, 5000), None], pa.time32("ms")), "ns": pa.array([1, 0, None], pa.time64("ns")),
    "list": pa.array([[day], [], None]), "times": pa.array([[datetime.timedelta(seconds=1)], [], None]), "decs": pa.array([[D("1.50")], [], None]),
    "struct": pa.array([{"a": 2**64 - 1, "b": 3}, {"a": None, "b": None}, None], pa.struct([("a", pa.uint64()), ("b", pa.duration("s"))])),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())), "word": pa.array(["a", "b", None]).dictionary_encode(),
}
for bits in (8, 16, 32, 64): columns[f"u{bits}"] = pa.array([0, 2**bits - 1, None], f"uint{bits}")
for unit, size in zip(units, (1, 10**3, 10**6, 10**9)):
    for name, zone in (("plain", None), ("zone", "Europe/Berlin"), ("offset", "+02:00")):
        columns[name + unit] = pa.array([moment * size, -size, None], pa.timestamp(unit, zone))
    columns["duration" + unit] = pa.array([size, -1, None], pa.duration(unit))
table = pa.table(columns)
for compression in ("none", "snappy", "gzip", "brotli", "lz4", "zstd"):
    pyarrow.parquet.write_table(table, f"{sys.argv[1]}/{compression}.parquet", compression=compression)
pyarrow.parquet.write_table(table, f"{sys.argv[1]}/old.parquet", store_schema=False, data_page_version="2.0", use_dictionary=False)`
	dir := t.TempDir()
	python(t, save, dir)
	want := linesOf(t, filepath.Join(dir, "none.parquet"))
	require.Len(t, want, 3)
	for _, has := range []string{`{"d32":"1.10","d64":"1.10","d128":"0.00000001","d256":"1.10","d0":"100","day":"2024-02-29","day64":"2024-02-29",` +
		`"time":"01:02:03","ns":"00:00:00.000000001","list":["2024-02-29"],"times":[1000000],"decs":["1.50"],` +
		`"struct":{"a":18446744073709551615,"b":3},"bool8":1,"word":"a",`, `"plains":"2023-11-14T22:13:20","zones":"2023-11-14T22:13:20Z",` +
		`"offsets":"2023-11-14T22:13:20Z","durations":1,`, `"zonens":"2023-11-14T22:13:20Z"`, `"durationns":1000000000}`} {
		require.Contains(t, want[0], has)
	}
	require.Contains(t, want[1], `{"d32":"-3.00","d64":"-3.00","d128":"123456789012345678901234567890.12345678"`)
	require.Contains(t, want[1], `"u8":255,"u16":65535,"u32":4294967295,"u64":18446744073709551615`)
	all, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	require.Len(t, all, 7)
	for _, path := range all {
		require.Equal(t, want, linesOf(t, path), path)
	}
}
