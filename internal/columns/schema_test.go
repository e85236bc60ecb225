package columns_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/text"
)

// schemasBy are schemas that pyarrow wrote, as people do.
func schemasBy(t *testing.T, fields ...string) (schemas []columns.Schema, failed error) {
	t.Helper()
	need(t, "pyarrow", rig.Framework)
	folder := t.TempDir()
	program := "import pyarrow as pa, pyarrow.parquet as pq\n"
	for i, fields := range fields {
		program += fmt.Sprintf("pq.write_table(pa.schema([%s]).empty_table(), '%s/%d.parquet')\n", fields, folder, i)
	}
	python(t, program)
	for i := range fields {
		file, err := os.Open(fmt.Sprintf("%s/%d.parquet", folder, i))
		require.NoError(t, err)
		schema, err := columns.ReadSchema(file, "types.parquet")
		schemas, failed = append(schemas, schema), errors.Join(failed, err)
	}
	return schemas, failed
}

var declared = map[string]struct {
	fields string
	values []any
	// schema and rows are as pyarrow reads them.
	schema string
	rows   []string
}{
	"numbers": {`("n", pa.int32()), ("x", pa.float32()), ("ok", pa.bool_())`,
		[]any{`{"n":3,"x":0.1,"ok":true}`, `{"n":3000000000,"x":1}`, `{"n":2.5}`, `{"x":"0.5"}`, `{"x":` + text.NaN + `}`, `{"ok":"true"}`, `{"ok":1}`, nil, `{}`},
		"n: int32, x: float, ok: bool", []string{
			"3 0.10000000149011612 True", "None 1.0 None schema: n is 3000000000, and is to be int32", "None None None schema: n is 2.5, and is to be int32",
			`None None None schema: x is "0.5", and is to be float32`, "None nan None", `None None None schema: ok is "true", and is to be bool`,
			"None None None schema: ok is 1, and is to be bool", "None None None task_error: bad item", "None None None",
		}},
	"unsigned": {`("value", pa.uint64())`, []any{"18446744073709551615", "-1"}, "value: uint64", []string{
		"18446744073709551615", "None schema: value is -1, and is to be uint64"}},
	"vectors": {`("value", pa.list_(pa.float32(), 2))`,
		[]any{vector, "[1,0.5]", "[1]", one("f\x08", "\x00\x00\x00\x00\x00\x00\xe0\x3f\x00\x00\x00\x00\x00\x00\xf0\x3f", 2), `[1,"a"]`, `{"a":1}`, "null", nil},
		"value: fixed_size_list<item: float>[2]", []string{
			"[1.0, 0.10000000149011612]", "[1.0, 0.5]", "None schema: value has 1 elements, and is to be fixed_size_list<element: float32>[2]", "[0.5, 1.0]",
			`None schema: value.element is "a", and is to be float32`, `None schema: value is {"a":1}, and is to be fixed_size_list<element: float32>[2]`, "None",
			"None task_error: bad item",
		}},
	"bytes alone": {`("value", pa.list_(pa.float32(), 2))`, []any{vector, nil, vector}, "value: fixed_size_list<item: float>[2]",
		[]string{"[1.0, 0.10000000149011612]", "None task_error: bad item", "[1.0, 0.10000000149011612]"}},
	"matrices": {`("value", pa.list_(pa.list_(pa.int16(), 2), 1))`, []any{one("i\x02", "\x01\x00\x02\x00", 1, 2), "[[3,4]]", "[null]"},
		"value: fixed_size_list<item: fixed_size_list<item: int16>[2]>[1]", []string{
			"[[1, 2]]", "[[3, 4]]", "None schema: value.element is null, and is to be fixed_size_list<element: int16>[2]"}},
	"lists": {`("tags", pa.list_(pa.string())), ("ids", pa.list_(pa.int64()))`,
		[]any{`{"tags":["a","b"],"ids":[9007199254740993,null]}`, `{"tags":[1],"ids":[]}`, `{"tags":"a"}`, around(`{"ids":`, one("i\x08", "\x07\x00\x00\x00\x00\x00\x00\x00", 1), `}`)},
		"tags: list<item: string>, ids: list<item: int64>", []string{
			"['a', 'b'] [9007199254740993, None]", "None [] schema: tags is [1], and is to be list<element: utf8>",
			`None None schema: tags is "a", and is to be list<element: utf8>`, "None [7]",
		}},
	"maps": {`("m", pa.map_(pa.string(), pa.int64()))`, []any{`{"m":[{"key":"a","value":1}]}`, `{"m":{"a":1}}`, `{"m":[{"value":1}]}`},
		"m: map<string, int64 ('m')>", []string{"[('a', 1)]", `None schema: m is {"a":1}, and is to be map<utf8, int64, items_nullable>`, "None schema: m.entries.key is null, and is to be utf8"}},
	"structs": {`("meta", pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.list_(pa.string()))]))`,
		[]any{`{"meta":{"a":1,"b":["x"]}}`, `{"meta":{"b":[]}}`, `{"meta":{"a":1,"c":2}}`, `{"meta":null}`, `{"meta":[1]}`, `{"meta":{"a":"1"}}`, `{"more":1}`, `5`},
		"meta: struct<a: int64 not null, b: list<item: string>>", []string{
			"{'a': 1, 'b': ['x']}", "None schema: meta.a is null, and is to be int64", `None schema: meta has a field "c", and is to be struct<a: int64, b: list<element: utf8>>`,
			"None", "None schema: meta is [1], and is to be struct<a: int64, b: list<element: utf8>>", `None schema: meta.a is "1", and is to be int64`,
			`None schema: it has a field "more", for which there is no column`, "None schema: it is 5, and is to be an object",
		}},
	"times and decimals": {`("at", pa.timestamp("ms", "UTC")), ("day", pa.date32()), ("price", pa.decimal128(6, 2)), ("raw", pa.binary())`,
		[]any{`{"at":"2026-11-30T06:00:00.5Z","day":"2026-11-30","price":"1.10","raw":"YQ=="}`, `{"at":"yesterday"}`, `{"day":"30.11.2026"}`, `{"price":"a lot"}`, `{"raw":"?"}`, `{"price":1.105}`},
		"at: timestamp[ms, tz=UTC], day: date32[day], price: decimal128(6, 2), raw: binary", []string{
			"2026-11-30 06:00:00.500000+00:00 2026-11-30 1.10 b'a'", `None None None None schema: at is "yesterday", and is to be timestamp[ms, tz=UTC]`,
			`None None None None schema: day is "30.11.2026", and is to be date32`, `None None None None schema: price is "a lot", and is to be decimal(6, 2)`,
			`None None None None schema: raw is "?", and is to be binary`,
			"None None 1.11 None",
		}},
	"text": {`pa.field("value", pa.string(), nullable=False), `, []any{`"2026-11-30"`, "5", text.NaN, "null", nil}, "value: string", []string{
		"2026-11-30", "None schema: value is 5, and is to be utf8", `None schema: value is "NaN", and is to be utf8`, "None schema: value is null, and is to be utf8", "None task_error: bad item"}},
	"arrays alone": {`("value", pa.list_(pa.list_(pa.float32(), 2), 1)), `, []any{one("f\x04", "\x00\x00\x80\x3f\xcd\xcc\xcc\x3d", 1, 2), nil},
		"value: fixed_size_list<item: fixed_size_list<item: float>[2]>[1]", []string{"[[1.0, 0.10000000149011612]]", "None task_error: bad item"}},
	"halves":     {`("value", pa.list_(pa.float32(), 1))`, []any{one("f\x02", "\x66\x2e", 1), "[1]"}, "value: fixed_size_list<item: float>[1]", []string{"[0.0999755859375]", "[1.0]"}},
	"categories": {`("value", pa.dictionary(pa.int8(), pa.string()))`, []any{`"a"`, "1"}, "value: string", []string{"a", "None schema: value is 1, and is to be utf8"}},
	"no times": {`("value", pa.timestamp("ms"))`, []any{`"20261130"`, `"-5"`, "1700000000"}, "value: timestamp[ms]", []string{
		`None schema: value is "20261130", and is to be timestamp[ms]`, `None schema: value is "-5", and is to be timestamp[ms]`, "None schema: value is 1700000000, and is to be timestamp[ms]"}},
	"no decimals": {`("value", pa.decimal128(6, 2))`, []any{`"Inf"`, `"1e999999999"`, `"1.5"`}, "value: decimal128(6, 2)", []string{
		`None schema: value is "Inf", and is to be decimal(6, 2)`, `None schema: value is "1e999999999", and is to be decimal(6, 2)`, "1.50"}},
	"an object": {`("value", pa.int64())`, []any{`{"value":1}`, "1"}, "value: int64", []string{`None schema: value is {"value":1}, and is to be int64`, "1"}},
	"a struct":  {`("value", pa.struct([("value", pa.int64())]))`, []any{`{"value":1}`, "1"}, "value: struct<value: int64>", []string{"{'value': 1}", "None schema: value is 1, and is to be struct<value: int64>"}},
}

// A declared column has its type whatever comes first. A value that does not fit it is a
// fault of its row alone.
func TestSchema_Declared(t *testing.T) {
	const read = `
import sys, pyarrow.parquet as pq
for name in sys.argv[1:]:
    table = pq.read_table(name)
    kinds = [f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in table.schema if f.name not in ("index", "fault", "fault_message")]
    print(", ".join(kinds).replace("element:", "item:"))
    for row in table.drop_columns("index").to_pylist():
        kind, message = row.pop("fault"), row.pop("fault_message")
        print(*row.values(), *([f"{kind}: {message}"] if kind else []))
`
	names := slices.Sorted(maps.Keys(declared))
	var fields, want, paths []string
	for _, name := range names {
		fields = append(fields, declared[name].fields)
	}
	schemas, err := schemasBy(t, fields...)
	require.NoError(t, err)
	for i, name := range names {
		c := declared[name]
		path, unfit, err := writeAs(t, values(c.values...), schemas[i])
		require.NoError(t, err, name)
		rows := strings.Join(c.rows, "\n")
		require.Equal(t, strings.Contains(rows, " schema: "), unfit != nil, name)
		paths, want = append(paths, path), append(want, c.schema, rows)
	}
	require.Equal(t, strings.Join(want, "\n"), python(t, read, paths...))
}

// The columns of a file of results are types for the next one.
func TestSchema_OfResults(t *testing.T) {
	results := values(`{"x":1.5,"tags":["a"]}`, `{"x":"none","tags":5}`)
	for i := range results {
		results[i].Key, results[i].Item = []byte(`"a"`), []byte(`{"i":1}`)
	}
	last, err := write(t, results[:1])
	require.NoError(t, err)
	file, err := os.Open(last)
	require.NoError(t, err)
	schema, err := columns.ReadSchema(file, last)
	require.NoError(t, err)
	path, unfit, err := writeAs(t, results, schema)
	require.NoError(t, err)
	require.EqualValues(t, 1, unfit.Count)
	require.ErrorContains(t, unfit, `(item 1: x is "none", and is to be float64)`)
	const beside = `"key":"a","item":"{\"i\":1}",`
	require.Equal(t, []string{`{"index":0,` + beside + `"x":1.5,"tags":"[\"a\"]"` + good,
		`{"index":1,` + beside + `"x":null,"tags":"5","fault":"schema","fault_message":"x is \"none\", and is to be float64"}`}, linesOf(t, path))
	results[0].Item = nil
	path, unfit, err = writeAs(t, results[:1], columns.Schema{schema[2], schema[3]})
	require.NoError(t, err)
	require.Nil(t, unfit)
	require.Equal(t, []string{`{"index":0,"x":1.5,"tags":"[\"a\"]","key":"a"` + good}, linesOf(t, path), "the key needs no declaration")
}

// What could not be written is refused before anything runs.
func TestSchema_Refused(t *testing.T) {
	for fields, want := range map[string]string{
		`("meta", pa.struct([("v", pa.list_(pa.float32(), 2))]))`: "column meta is struct<v: fixed_size_list<element: float32>[2]>; within other types",
		`("took", pa.duration("s"))`:                              "support for DURATION",
	} {
		_, err := schemasBy(t, fields)
		require.ErrorAs(t, err, new(*gpumux.SourceError))
		require.ErrorContains(t, err, "types.parquet: ")
		require.ErrorContains(t, err, want)
	}
}
