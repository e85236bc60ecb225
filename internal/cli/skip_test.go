package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/columns"
)

// table writes results as a Parquet file.
func table(t *testing.T, name string, results ...string) {
	t.Helper()
	file, err := os.Create(name)
	require.NoError(t, err)
	defer file.Close()
	to := columns.NewWriter(file, nil)
	for _, result := range results {
		require.NoError(t, to.Add([]byte(result)))
	}
	require.NoError(t, to.Finish())
}

func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }

// left are the items of in.jsonl that --skip leaves, with --out out/today.jsonl.
func left(t *testing.T, key string, skip ...string) []string {
	t.Helper()
	s := newSkipped(key)
	require.NoError(t, s.read(t.Context(), skip, "out/today.jsonl"))
	all := itemsOf(t, source{in: []string{"in.jsonl"}})
	items := itemsOf(t, source{in: []string{"in.jsonl"}, drop: s.drop})
	require.EqualValues(t, len(all)-len(items), s.count)
	return items
}

func TestSkip_ByKey(t *testing.T) {
	t.Chdir(t.TempDir())
	one, two, half, null, none, six := `{"id":1}`, `{"id":"two"}`, `{"id":0.5}`, `{"id":null}`, `{"name":"none"}`, `{"id":"\u0073ix"}`
	write(t, "in.jsonl", lines(one, two, half, null, none, six))
	require.NoError(t, os.Mkdir("out", 0o755))
	write(t, "results.jsonl", lines(`{"index":0,"value":7,"key":1}`, `{"index":1,"fault":{"kind":"task_error"},"key":0.5}`, `{"index":2,"value":null,"key":"six"}`,
		`{"index":3,"value":7,"key":null}`, `{"index":4,"value":{"error":"as data"},"key":"two"}`))
	write(t, "openai.jsonl", lines(`{"id":"two","response":{"status_code":200},"error":null}`, `{"id":1,"response":{"status_code":400},"error":null}`,
		`{"id":"six","response":null,"error":{"code":"timeout"}}`))
	write(t, "own.csv", "id,length\n1,2\ntwo,3\n")
	write(t, "results.csv", "index,value,fault,key\n0,7,,two\n1,,crash,six\n")
	write(t, "own.jsonl", lines(`{"id":1,"key":"two"}`, `{"index":7,"id":"six"}`))
	write(t, "out/today.jsonl", lines(`{"index":0,"value":7,"key":"two"}`))
	write(t, "out/.gpumux-7.jsonl", lines(`{"index":0,"value":7,"key":"six"}`))
	write(t, "out/yesterday.jsonl", lines(`{"index":0,"value":7,"key":1}`))
	table(t, "results.parquet", `{"index":0,"value":[0.5,1],"key":"two"}`, `{"index":1,"fault":{"kind":"task_error"},"key":"six"}`)
	table(t, "own.parquet", `{"index":0,"value":{"id":1,"vector":[0.5]}}`, `{"index":1,"value":{"id":4,"vector":[0.5]}}`)
	for name, want := range map[string][]string{
		"results.jsonl":   {half, null, none},
		"results.parquet": {one, half, null, none, six},
		"openai.jsonl":    {one, half, null, none, six},
		"own.jsonl":       {two, half, null, none},
		"results.csv":     {one, half, null, none, six},
		"own.csv":         {half, null, none, six},
		"own.parquet":     {two, half, null, none, six},
		"out":             {two, half, null, none, six},
		"out/*":           {two, half, null, none, six},
		"nothing/*.jsonl": {one, two, half, null, none, six},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, want, left(t, "id", name)) })
	}
	require.Equal(t, []string{half, null, none, six}, left(t, "id", "results.parquet", "out/*"))

	table(t, "keyless.parquet", `{"index":0,"value":1}`)
	write(t, "a.py", "def f(item): pass\n")
	write(t, "keyless.jsonl", lines(`{"index":0,"value":1}`))
	for name, want := range map[string]string{
		"gone.jsonl":      "--skip gone.jsonl: no such file",
		"keyless.jsonl":   `--skip: a row has no "key" to say whose result it is: {"index":0,"value":1}`,
		"keyless.parquet": `keyless.parquet: there is no column "id"; it has index, value, fault`,
	} {
		o := run(t, "", "map", "a.py:f", "--in", "in.jsonl", "--local", "--key", "id", "--skip", name)
		require.Equal(t, exitUsage, o.code, o.stderr)
		require.Contains(t, o.stderr, want)
	}
}

func TestSkip_ByTheWholeItem(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "in.jsonl", lines(`{"a": [1, 2]}`, `"/photos/1.png"`, `null`, `7`))
	write(t, "results.jsonl", lines(`{"index":0,"value":7,"item":{"a":[1,2]}}`, `{"index":1,"fault":{"kind":"task_error"},"item":7}`, `{"index":2,"value":7,"item":null}`))
	table(t, "text.parquet", `{"index":0,"value":7,"item":"/photos/1.png"}`)
	table(t, "objects.parquet", `{"index":0,"value":7,"item":{"a": [1, 2]}}`)
	table(t, "both.parquet", `{"index":0,"value":7,"item":"/photos/1.png"}`, `{"index":1,"value":7,"item":{"a": [1, 2]}}`)
	require.Equal(t, []string{`"/photos/1.png"`, `null`, `7`}, left(t, "", "results.jsonl"))
	require.Equal(t, []string{`{"a": [1, 2]}`, `null`, `7`}, left(t, "", "text.parquet"))
	require.Equal(t, []string{`"/photos/1.png"`, `null`, `7`}, left(t, "", "objects.parquet"))
	require.Equal(t, []string{`null`, `7`}, left(t, "", "both.parquet"))
}
