package cli

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/s3test"
)

// resultRows are results to write.
func resultRows(lines ...string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, line := range lines {
			if !yield([]byte(line), nil) {
				return
			}
		}
	}
}

func TestOutput_FilesOfColumns(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const name = "r.parquet"
	o, err := chooseOutput(name, "", nil, false, false)
	require.NoError(t, err)
	_, err = o.write(context.Background(), resultRows(`{"index":0,"value":{"a":1,"b":"x"}}`, "", `{"index":1,"value":{"a":2}}`))
	require.NoError(t, err)
	require.Equal(t, []string{`{"b":"x","a":1}`, `{"b":null,"a":2}`}, itemsOf(t, source{in: []string{name}, columns: []string{"b", "a"}}))
	require.Equal(t, []string{`{"a":1}`, `{"a":2}`, `{"a":1}`, `{"a":2}`},
		itemsOf(t, source{in: []string{"file://" + filepath.Join(dir, name), name}, columns: []string{"a"}}))
	require.ErrorContains(t, mistaken(t, source{in: []string{name}, columns: []string{"c"}}), `there is no column "c"; it has index, a, b`)
	require.ErrorContains(t, mistaken(t, source{in: []string{name}, lines: true}), "--lines, --delimiter and --text go with text")
	for _, in := range []string{"x.arrow", "s3://bucket/x.Feather?region=eu-west-1", "folder"} {
		require.NoError(t, os.MkdirAll("folder", 0o755))
		write(t, "folder/x.arrow", "")
		require.ErrorContains(t, mistaken(t, source{in: []string{in}}), ", or .parquet")
	}
	write(t, "bad.parquet", "PAR1")
	require.ErrorContains(t, mistaken(t, source{in: []string{"bad.parquet"}}), "bad.parquet: not read as .parquet")
	require.ErrorContains(t, mistaken(t, source{in: []string{"none.parquet"}}), "--in none.parquet: no such file or directory; give")
}

// A table in a bucket is read by position, and no more of it than its columns.
func TestRead_TableInABucket(t *testing.T) {
	t.Chdir(t.TempDir())
	o, err := chooseOutput("r.parquet", "", nil, false, false)
	require.NoError(t, err)
	_, err = o.write(context.Background(), resultRows(`{"index":0,"value":{"a":1,"b":"x"}}`, `{"index":1,"value":{"a":2,"b":"y"}}`))
	require.NoError(t, err)
	server := s3test.New(t)
	s, err := store.Open(t.Context(), server.URL(""))
	require.NoError(t, err)
	defer s.Close()
	w, err := s.Objects.Create(t.Context(), "in/r.parquet", objects.Creation{})
	require.NoError(t, err)
	_, err = w.Write([]byte(readAll(t, "r.parquet")))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	url := "s3://bucket/in/r.parquet?region=eu-west-1&endpoint=" + server.Endpoint
	require.Equal(t, []string{`{"b":"x"}`, `{"b":"y"}`}, itemsOf(t, source{in: []string{url}, columns: []string{"b"}}))
	require.ErrorContains(t, mistaken(t, source{in: []string{url}, columns: []string{"c"}}), `in/r.parquet: there is no column "c"`)
	url = "s3://bucket/none.parquet?region=eu-west-1&endpoint=" + server.Endpoint
	require.ErrorContains(t, mistaken(t, source{in: []string{url}}), "file does not exist")
}

func TestOutput_AFileOfColumnsStaysAsItWas(t *testing.T) {
	t.Chdir(t.TempDir())
	o, err := chooseOutput("r.parquet", "", nil, false, false)
	require.NoError(t, err)
	failed := `{"index":1,"fault":{"kind":"task_error","message":"no"}}`
	causes, err := o.write(context.Background(), resultRows(`{"index":0,"value":1}`, failed))
	require.NoError(t, err)
	require.Len(t, causes.Sorted(), 1)
	before := readAll(t, "r.parquet")
	_, err = o.write(context.Background(), resultRows("no result"))
	require.ErrorContains(t, err, "write r.parquet: not a result")
	require.Equal(t, before, readAll(t, "r.parquet"))
	left, err := filepath.Glob(".gpumux-*")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOutput_WhatColumnsCannotBe(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Symlink("/dev/null", "null.parquet"))
	for name, want := range map[string]string{
		"x.npy":         "results are JSON lines or Parquet; name the file .jsonl or .parquet",
		"x.jsonl.GZ":    "give --out - and pipe them into gzip or zstd",
		"x.parquet.zst": "leave the last ending away",
		"null.parquet":  "it is no file; Parquet needs one",
		"x.feather":     "results are JSON lines or Parquet; name the file .jsonl or .parquet",
	} {
		_, err := chooseOutput(name, "", nil, false, false)
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, filter{failed: true}.suits("x.parquet"), "go with JSON lines")
	require.NoError(t, filter{}.suits("x.parquet"))
	require.NoError(t, filter{values: true}.suits("x.jsonl"))
}
