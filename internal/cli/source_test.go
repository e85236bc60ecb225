package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/test/s3test"
	"github.com/gpumux/gpumux/starter"
)

// itemsOf gives the items as text.
func itemsOf(t *testing.T, s source) (got []string) {
	t.Helper()
	var m starter.Map
	require.NoError(t, s.read(t.Context(), &m))
	defer m.Spooled.Remove()
	all, err := (*items.Spooled)(m.Spooled).All()
	require.NoError(t, err)
	for _, item := range all {
		got = append(got, string(item))
	}
	return got
}

// mistaken reads what cannot be read as it was named.
func mistaken(t *testing.T, s source) error {
	t.Helper()
	err := s.read(t.Context(), &starter.Map{})
	require.True(t, errors.As(err, new(*local.MistakeError)) || errors.As(err, new(*gpumux.SourceError)), "%v", err)
	return err
}

func TestRead_Glob(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"b.png", "a.png", "x <&>.png", "c.txt", "deep/er/d.png", "deep/e.png"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		write(t, name, "")
	}
	require.NoError(t, os.Mkdir("folder.png", 0o755))
	for pattern, want := range map[string][]string{
		"*.png":                {"a.png", "b.png", "x <&>.png"},
		"deep/*.png":           {"deep/e.png"},
		"**/*.png":             {"a.png", "b.png", "deep/e.png", "deep/er/d.png", "x <&>.png"},
		"deep/**/*.png":        {"deep/e.png", "deep/er/d.png"},
		"**/er/*.png":          {"deep/er/d.png"},
		dir + "/deep/**/*.png": {"deep/e.png", "deep/er/d.png"},
	} {
		for i, name := range want {
			want[i] = `"` + filepath.Join(dir, name) + `"`
		}
		require.Equal(t, want, itemsOf(t, source{glob: []string{pattern}}), pattern)
	}
	require.Len(t, itemsOf(t, source{glob: []string{"deep/*.png", "*.png"}}), 4)
}

func TestRead_Delimiter(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "x.csv", "a;b\n1;2\n")
	write(t, "x.tsv", "a\tb\n1\t2\n")
	write(t, "x.jsonl", "[1,2]\n")
	for _, s := range []source{{in: []string{"x.csv"}, delimiter: ';'}, {in: []string{"x.tsv"}},
		{in: []string{"-"}, delimiter: ';', stdin: strings.NewReader("a;b\n1;2\n")}} {
		require.Equal(t, []string{`{"a":1,"b":2}`}, itemsOf(t, s))
	}
	require.ErrorContains(t, mistaken(t, source{in: []string{"x.csv"}}), "give the delimiter ';'")
	require.ErrorContains(t, mistaken(t, source{in: []string{"x.jsonl"}, delimiter: ';'}),
		"--delimiter goes with CSV, and the name of --in x.jsonl says JSON lines")
}

// IDs are what was written, and what is written as a number elsewhere is one.
func TestRead_Text(t *testing.T) {
	t.Chdir(t.TempDir())
	const table = "id,v,n\n1e5,1.10,1.10\n007,2,3\n"
	write(t, "x.csv", table)
	write(t, "x.jsonl", "1\n")
	want := []string{`{"id":"1e5","v":"1.10","n":1.10}`, `{"id":"007","v":"2","n":3}`}
	require.Equal(t, want, itemsOf(t, source{in: []string{"x.csv"}, text: []string{"v", "id"}}))
	require.Equal(t, want, itemsOf(t, source{in: []string{"-"}, text: []string{"v", "id"}, stdin: strings.NewReader(table)}))
	require.Equal(t, `{"id":1e5,"v":1.10,"n":1.10}`, itemsOf(t, source{in: []string{"x.csv"}})[0])
	require.ErrorContains(t, mistaken(t, source{in: []string{"x.csv"}, text: []string{"ID"}}), `x.csv:1: there is no column "ID"; it has id, v, n`)
	require.ErrorContains(t, mistaken(t, source{in: []string{"x.jsonl"}, text: []string{"id"}}),
		"--text goes with CSV, and the name of --in x.jsonl says JSON lines")
}

func TestRead_FoldersAndPatterns(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"data/2024/01/b.csv": "x\n3\n", "data/2024/01/a.csv.gz": "x\n1\n2\n", "data/2023/12/z.csv": "x\n0\n",
		"data/_SUCCESS": "", "data/_tmp/y.csv": "x\n9\n", "data/2023/.x.csv": "x\n9\n",
		"plain/a.jsonl": "1\n", "plain/deep/b.ndjson": "2\n", "plain/deep/c.txt": "3\n", "mixed/a.csv": "x\n1\n", "mixed/b.jsonl": "1\n",
		"[1].jsonl": "7\n", "empty/_x": "", "plain/._a.jsonl": "\x00\x05", "plain/_tmp.jsonl": "{", "plain/_deep/x.ndjson": "8\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		if strings.HasSuffix(name, ".gz") {
			var packed bytes.Buffer
			to := gzip.NewWriter(&packed)
			_, err := to.Write([]byte(text))
			require.NoError(t, errors.Join(err, to.Close()))
			text = packed.String()
		}
		write(t, name, text)
	}
	rows := []string{`{"x":0}`, `{"x":1}`, `{"x":2}`, `{"x":3}`}
	for in, want := range map[string][]string{
		"data":              rows,
		"data/2024":         rows[1:],
		"data/*/*/z.csv":    rows[:1],
		"plain":             {"1", "2", "3"},
		"plain/**/*.ndjson": {"2"},
		"./plain/*.jsonl":   {"1"},
		"[1].jsonl":         {"7"},
	} {
		require.Equal(t, want, itemsOf(t, source{in: []string{in}}), in)
	}
	require.Equal(t, []string{rows[0], "1"}, itemsOf(t, source{in: []string{"data/*/*/z.csv", "plain/a*"}}))
	require.Equal(t, `{"x":"0"}`, itemsOf(t, source{in: []string{"data"}, text: []string{"x"}})[0])
	for in, says := range map[string]string{
		"mixed":      "mixed/a.csv and ",
		"none/*.csv": "--in none/*.csv: no file is there; put a pattern in quotes",
		"empty":      "--in empty: no file is there",
		"empty/*":    "--in empty/*: no file is there; put",
		"a[":         "not a pattern",
	} {
		require.ErrorContains(t, mistaken(t, source{in: []string{in}}), says, in)
	}
	require.ErrorContains(t, mistaken(t, source{in: []string{"data"}, columns: []string{"x"}}), "--columns go with Parquet files")
	for out, takes := range map[string]bool{"plain/out.jsonl": true, "plain/deep/out.jsonl": true, "plain2.jsonl": false} {
		require.Equal(t, takes, takesFile("plain", out), out)
	}
	require.True(t, takesFile("data/*/*/*.csv", "data/2023/12/z.csv"))
	require.False(t, takesFile("data/*/*/*.csv", "data/2023/12/y.csv"))
}

func TestRead_AFolderOnAServer(t *testing.T) {
	server := s3test.New(t)
	b, err := objects.Open(t.Context(), server.URL(""))
	require.NoError(t, err)
	defer b.Close()
	for key, text := range map[string]string{
		"data/2023/a b.csv": "x\n0\n", "data/2024/c.csv": "x\n1\n", "data/_SUCCESS": "", "data/2024/.d.csv": "x\n9\n",
		"data/2024/_c.csv": "x\n9\n", "mixed/a.csv": "x\n5\n", "mixed/a.jsonl": "7\n",
	} {
		require.NoError(t, b.Put(t.Context(), key, strings.NewReader(text), objects.Creation{}))
	}
	query := "?region=eu-west-1&endpoint=" + server.Endpoint
	for in, want := range map[string][]string{
		"data/":         {`{"x":0}`, `{"x":1}`},
		"data/20*/c*":   {`{"x":1}`},
		"data/*/*.csv":  {`{"x":0}`, `{"x":1}`},
		"mixed/*.jsonl": {"7"},
		"*/*.csv":       {`{"x":5}`},
	} {
		require.Equal(t, want, itemsOf(t, source{in: []string{"s3://bucket/" + in + query}}), in)
	}
	for in, says := range map[string]string{
		"mixed/":    "are of different formats; take those of one by a pattern, such as '**/*.jsonl'",
		"none/":     "no file is there",
		"none/*.gz": "no file is there",
		"data":      "the URL of a folder ends in a slash",
	} {
		require.ErrorContains(t, mistaken(t, source{in: []string{"s3://bucket/" + in + query}}), says, in)
	}
	require.False(t, takesFile("s3://bucket/data/"+query, "out.csv"))
}

// What the machine lacks is no mistake in the items, and no failed map either.
func TestRead_WhoseFaultItIs(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good.jsonl"), "1\n")
	write(t, filepath.Join(dir, "bad.jsonl"), "{\n")
	require.Error(t, mistaken(t, source{in: []string{filepath.Join(dir, "bad.jsonl")}}))
	t.Setenv("TMPDIR", filepath.Join(dir, "missing"))
	err := source{in: []string{filepath.Join(dir, "good.jsonl")}}.read(t.Context(), &starter.Map{})
	require.ErrorContains(t, err, "(TMPDIR)")
	require.ErrorAs(t, err, new(*local.UnavailableError))
	require.False(t, errors.As(err, new(*gpumux.SourceError)))
}

// A terminal that says nothing must not hold up an interrupt.
func TestRead_InterruptedWhileTheStreamBlocks(t *testing.T) {
	silent, hold := io.Pipe()
	defer hold.Close()
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		err := source{in: []string{"-"}, stdin: silent}.read(ctx, &starter.Map{})
		ended <- err
	}()
	cancel(interrupted)
	require.ErrorIs(t, <-ended, interrupted)
}

// Inputs are read in the order in which they are given, each in its own format.
func TestRead_SeveralInputs(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "a.jsonl", "1\n2") // without a newline at its end
	write(t, "b.csv", "x\n3\n")
	write(t, "bad.jsonl", "4\n{\n")
	require.Equal(t, []string{`{"x":3}`, "1", "2", "5", "1", "2"},
		itemsOf(t, source{in: []string{"b.csv", "a.jsonl", "-", "a.jsonl"}, stdin: strings.NewReader("5\n")}))
	require.Equal(t, []string{`"1"`, `"2"`, `"x"`, `"3"`}, itemsOf(t, source{in: []string{"a.jsonl", "b.csv"}, lines: true}))
	require.ErrorContains(t, mistaken(t, source{in: []string{"a.jsonl", "bad.jsonl"}}), "bad.jsonl:2")
	require.ErrorContains(t, mistaken(t, source{in: []string{"a.jsonl", "none.jsonl"}}), "--in none.jsonl: no such file or directory")
}

func TestRead_Lines(t *testing.T) {
	s := source{in: []string{"-"}, lines: true, stdin: strings.NewReader("\xef\xbb\xbfone \"two\"\r\n\n\tthree\\ü")}
	require.Equal(t, []string{`"one \"two\""`, `""`, `"\tthree\\ü"`}, itemsOf(t, s))
	s.stdin = strings.NewReader("a\n\xff\n")
	require.ErrorContains(t, mistaken(t, s), "standard input:2: not UTF-8")
}

// A name that is not UTF-8 has no form in JSON; it was changed on its way before.
func TestRead_GlobNamesAFileThatNoItemCanName(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a\xff.png"), "")
	err := mistaken(t, source{glob: []string{filepath.Join(dir, "*.png")}})
	require.ErrorContains(t, err, `a\xff.png`)
	require.ErrorContains(t, err, "not UTF-8")
}
