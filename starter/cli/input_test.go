package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func TestReadItems_Glob(t *testing.T) {
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
		over, err := globItems(t.Context(), pattern)
		require.NoError(t, err, pattern)
		all, err := over.spooled.All()
		require.NoError(t, err)
		var got []string
		for _, item := range all {
			got = append(got, string(item))
		}
		over.remove()
		for i, name := range want {
			want[i] = `"` + filepath.Join(dir, name) + `"`
		}
		require.Equal(t, want, got, pattern)
	}
}

func TestReadItems_Delimiter(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "x.csv", "a;b\n1;2\n")
	write(t, "x.tsv", "a\tb\n1\t2\n")
	write(t, "x.jsonl", "[1,2]\n")
	write(t, "list", "[1]\n[2]\n")
	a := &app{Options: Options{Stdin: strings.NewReader("a;b\n1;2\n")}}
	for _, f := range []mapFlags{{in: []string{"x.csv"}, comma: ';'}, {in: []string{"x.tsv"}}, {in: []string{"-"}, comma: ';'}} {
		over, err := a.readItems(t.Context(), &f)
		require.NoError(t, err)
		all, err := over.spooled.All()
		require.NoError(t, err)
		require.Equal(t, []json.RawMessage{json.RawMessage(`{"a":1,"b":2}`)}, all)
		require.False(t, over.isOneList())
		over.remove()
	}
	_, err := a.readItems(t.Context(), &mapFlags{in: []string{"x.csv"}})
	require.ErrorContains(t, err, "give --delimiter ';'")
	require.Equal(t, ExitUsage, exitCode(err))
	_, err = a.readItems(t.Context(), &mapFlags{in: []string{"x.jsonl"}, comma: ';'})
	require.ErrorContains(t, err, "--delimiter goes with CSV, and the name of --in x.jsonl says JSON lines")
	for name, want := range map[string]bool{"x.jsonl": true, "list": false} {
		over, err := a.readItems(t.Context(), &mapFlags{in: []string{name}})
		require.NoError(t, err)
		require.Equal(t, want, over.isOneList(), name)
		over.remove()
	}
}

func TestReadItems_Range(t *testing.T) {
	a := &app{}
	over, err := a.readItems(t.Context(), &mapFlags{rng: "5:1005"})
	require.NoError(t, err)
	require.Equal(t, &gpumux.Range{Start: 5, End: 1005}, over.rng)
	_, err = a.readItems(t.Context(), &mapFlags{rng: "-9223372036854775808:9223372036854775807"})
	require.ErrorContains(t, err, "more numbers than can be counted")
	require.Equal(t, ExitUsage, exitCode(err))
}

// What the machine lacks is no mistake in the items, and no failed map either.
func TestReadItems_WhoseFaultItIs(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good.jsonl"), "1\n")
	write(t, filepath.Join(dir, "bad.jsonl"), "{\n")
	a := &app{}
	_, err := a.readItems(t.Context(), &mapFlags{in: []string{filepath.Join(dir, "bad.jsonl")}})
	require.Equal(t, ExitUsage, exitCode(err))
	t.Setenv("TMPDIR", filepath.Join(dir, "missing"))
	_, err = a.readItems(t.Context(), &mapFlags{in: []string{filepath.Join(dir, "good.jsonl")}})
	require.ErrorContains(t, err, "(TMPDIR)")
	require.Equal(t, ExitUnavailable, exitCode(err))
}

// A terminal that says nothing must not hold up an interrupt.
func TestReadItems_InterruptedWhileTheStreamBlocks(t *testing.T) {
	silent, hold := io.Pipe()
	defer hold.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	a := &app{Options: Options{Stdin: silent}}
	ended := make(chan error)
	go func() {
		_, err := a.readItems(ctx, &mapFlags{in: []string{"-"}})
		ended <- err
	}()
	cancel(errInterrupted)
	require.Equal(t, ExitInterrupted, exitCode(<-ended))
}

func TestFailedLine(t *testing.T) {
	require.True(t, failedLine([]byte(`{"index":123456789012,"fault":{"kind":"crash"}}`)))
	require.False(t, failedLine([]byte(`{"index":0,"value":{"fault":1}}`)))
	require.False(t, failedLine([]byte(`{"index":0,"value":"a,\"fault\""}`)))
	require.False(t, failedLine(nil))
}

// Inputs are read in the order in which they are given, each in its own format.
func TestReadItems_SeveralInputs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "a.jsonl", "1\n2") // without a newline at its end
	write(t, "b.csv", "x\n3\n")
	write(t, "bad.jsonl", "4\n{\n")
	a := &app{Options: Options{Stdin: strings.NewReader("5\n")}}
	read := func(f mapFlags) []string {
		over, err := a.readItems(t.Context(), &f)
		require.NoError(t, err)
		defer over.remove()
		all, err := over.spooled.All()
		require.NoError(t, err)
		var got []string
		for _, item := range all {
			got = append(got, string(item))
		}
		return got
	}
	require.Equal(t, []string{`{"x":3}`, "1", "2", "5", "1", "2"}, read(mapFlags{in: []string{"b.csv", "a.jsonl", "-", "a.jsonl"}}))
	require.Equal(t, []string{`"1"`, `"2"`, `"x"`, `"3"`}, read(mapFlags{in: []string{"a.jsonl", "b.csv"}, lines: true}))
	_, err := a.readItems(t.Context(), &mapFlags{in: []string{"a.jsonl", "bad.jsonl"}})
	require.ErrorContains(t, err, "bad.jsonl:2")
	require.Equal(t, ExitUsage, exitCode(err))
	_, err = a.readItems(t.Context(), &mapFlags{in: []string{"a.jsonl", "none.jsonl"}})
	require.ErrorContains(t, err, "--in none.jsonl: there is no such file")
	require.Equal(t, ExitUsage, exitCode(err))
}

func TestReadItems_Lines(t *testing.T) {
	a := &app{Options: Options{Stdin: strings.NewReader("\xef\xbb\xbfone \"two\"\r\n\n\tthree\\ü")}}
	over, err := a.readItems(t.Context(), &mapFlags{in: []string{"-"}, lines: true})
	require.NoError(t, err)
	defer over.remove()
	all, err := over.spooled.All()
	require.NoError(t, err)
	require.Equal(t, []json.RawMessage{json.RawMessage(`"one \"two\""`), json.RawMessage(`""`), json.RawMessage(`"\tthree\\ü"`)}, all)
	a.Stdin = strings.NewReader("a\n\xff\n")
	_, err = a.readItems(t.Context(), &mapFlags{in: []string{"-"}, lines: true})
	require.ErrorContains(t, err, "standard input:2: not UTF-8")
}

// A name that is not UTF-8 has no form in JSON; it was changed on its way before.
func TestReadItems_GlobNamesAFileThatNoItemCanName(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a\xff.png"), "")
	_, err := globItems(t.Context(), filepath.Join(dir, "*.png"))
	require.ErrorContains(t, err, `a\xff.png`)
	require.ErrorContains(t, err, "not UTF-8")
	require.Equal(t, ExitUsage, exitCode(err))
}
